# how the network was exported

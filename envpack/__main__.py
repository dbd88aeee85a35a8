from envpack.cli.entry import main

main()

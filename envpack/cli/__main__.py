from envpack.cli.main import main

main()

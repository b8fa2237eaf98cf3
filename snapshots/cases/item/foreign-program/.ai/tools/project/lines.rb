puts STDIN.readlines.size

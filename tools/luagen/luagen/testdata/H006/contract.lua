--- Contract does what the test wants.


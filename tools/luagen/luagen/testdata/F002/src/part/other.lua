local other = 1

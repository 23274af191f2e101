"""The program to run: a command or a workload file; inputs, output check, timeouts, server and load."""

"""What people see: the HTML report, terminal tables, and the lines to paste."""

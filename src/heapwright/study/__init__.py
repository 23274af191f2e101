"""Studies: the file and its schema, its content as plain data, and the judgements and sentences made from it."""

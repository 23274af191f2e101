# Reads orders from text and groups them by customer, as reports do.
rows <- 60000
text <- sprintf("%d,name %d,%d,%d", 0:(rows - 1), (0:(rows - 1)) %% 977, 0:(rows - 1), 2 * 0:(rows - 1))
for (round in 1:4) {
  fields <- strsplit(text, ",", fixed = TRUE)
  names <- vapply(fields, function(f) f[2], "")
  amounts <- vapply(fields, function(f) as.numeric(f[3]) + as.numeric(f[4]), 0)
  groups <- split(seq_along(names), names)
  sums <- sapply(groups, function(g) sum(amounts[g]))
  cat(length(groups), sum(sums), "\n")
}

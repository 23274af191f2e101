# Reads orders from JSON, groups them by customer and writes a report of strings.
require "json"

rows = (0...40_000).map { |i| { "id" => i, "name" => "n#{i % 977}", "values" => [i, i * 2, i.to_s] } }
text = JSON.generate(rows)
6.times do
  groups = JSON.parse(text).group_by { |row| row["name"] }
  lines = groups.map { |name, found| "#{name}: " + found.map { |row| row["values"].join(",") }.join(";") }
  puts "#{groups.size} #{lines.sum(&:size)}"
end

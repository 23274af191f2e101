# Groups orders by customer and writes a report of strings.
rows = for i <- 1..60000, do: {i, "n#{rem(i, 977)}", [i, i * 2, Integer.to_string(i)]}
for _ <- 1..4 do
  groups = Enum.group_by(rows, fn {_, name, _} -> name end)
  lines = for {name, found} <- groups, do: name <> ": " <> Enum.map_join(found, ";", fn {_, _, v} -> Enum.join(v, ",") end)
  IO.puts("#{map_size(groups)} #{Enum.sum(Enum.map(lines, &byte_size/1))}")
end

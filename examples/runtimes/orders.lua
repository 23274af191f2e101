-- Reads orders from text, groups them by customer and writes a report of strings.
local lines = {}
for i = 0, 59999 do
  lines[#lines + 1] = i .. ",n" .. i % 977 .. "," .. 2 * i .. "," .. i
end
local text = table.concat(lines, "\n")
lines = nil

for _ = 1, 3 do
  local groups = {}
  for id, name, first, second in text:gmatch("(%d+),(%w+),(%d+),(%d+)") do
    groups[name] = groups[name] or {}
    table.insert(groups[name], { id = id, values = { first, second } })
  end
  local names, length = 0, 0
  for name, orders in pairs(groups) do
    local rows = {}
    for i, order in ipairs(orders) do
      rows[i] = table.concat(order.values, ",")
    end
    names, length = names + 1, length + #(name .. table.concat(rows, ";"))
  end
  print(names, length)
end

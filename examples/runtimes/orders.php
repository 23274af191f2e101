<?php
// Reads orders from text, groups them by customer and writes a report of strings.

$text = "";
for ($i = 0; $i < 100000; $i++) {
    $text .= "$i,n" . $i % 977 . "," . 2 * $i . ",$i\n";
}
for ($round = 0; $round < 3; $round++) {
    $groups = [];
    foreach (explode("\n", rtrim($text)) as $line) {
        $values = explode(",", $line);
        $id = array_shift($values);
        $name = array_shift($values);
        $groups[$name][] = ["id" => $id, "values" => $values];
    }
    $length = 0;
    foreach ($groups as $name => $orders) {
        $rows = array_map(fn($order) => implode(",", $order["values"]), $orders);
        $length += strlen($name . implode(";", $rows));
    }
    echo count($groups), " $length\n";
}

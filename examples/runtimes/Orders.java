import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Reads orders from text, groups them by customer in a tree and writes a report of strings. */
public class Orders {
    record Order(int id, String name, List<String> values) {}

    public static void main(String[] arguments) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 80_000; i++) {
            text.append(i).append(',').append('n').append(i % 977).append(',').append(i * 2L).append(',').append(i).append('\n');
        }
        String all = text.toString();
        for (int round = 0; round < 30; round++) {
            Map<String, List<Order>> groups = new TreeMap<>();
            for (String line : all.split("\n")) {
                String[] parts = line.split(",");
                Order order = new Order(Integer.parseInt(parts[0]), parts[1], List.of(parts[2], parts[3]));
                groups.computeIfAbsent(order.name(), name -> new ArrayList<>()).add(order);
            }
            long length = 0;
            for (Map.Entry<String, List<Order>> group : groups.entrySet()) {
                StringBuilder line = new StringBuilder(group.getKey());
                for (Order order : group.getValue()) {
                    line.append(';').append(String.join(",", order.values()));
                }
                length += line.toString().length();
            }
            System.out.println(groups.size() + " " + length);
        }
    }
}

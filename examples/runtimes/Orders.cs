using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

/// <summary>Reads orders from text, groups them by customer in a tree and writes a report of strings.</summary>
public static class Orders
{
    private sealed class Order
    {
        public int Id;
        public string Name;
        public string[] Values;
    }

    public static void Main()
    {
        var text = new StringBuilder();
        for (int i = 0; i < 80000; i++)
        {
            text.Append(i).Append(',').Append('n').Append(i % 977).Append(',').Append(i * 2L).Append(',').Append(i).Append('\n');
        }
        string all = text.ToString();
        for (int round = 0; round < 8; round++)
        {
            var groups = new SortedDictionary<string, List<Order>>(StringComparer.Ordinal);
            foreach (string line in all.Split('\n'))
            {
                if (line.Length == 0) continue;
                string[] parts = line.Split(',');
                int id = int.Parse(parts[0], CultureInfo.InvariantCulture);
                var order = new Order { Id = id, Name = parts[1], Values = new[] { parts[2], parts[3] } };
                List<Order> group;
                if (!groups.TryGetValue(order.Name, out group)) groups[order.Name] = group = new List<Order>();
                group.Add(order);
            }
            long length = 0;
            foreach (KeyValuePair<string, List<Order>> group in groups)
            {
                var line = new StringBuilder(group.Key);
                foreach (Order order in group.Value) line.Append(';').Append(string.Join(",", order.Values));
                length += line.ToString().Length;
            }
            Console.WriteLine(groups.Count + " " + length);
        }
    }
}

import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Executors;

/**
 * A web service: each request for /report/N makes a table of rows with buffers, answers with it as JSON, and keeps the answer in a
 * cache for a while. It is examples/http_server.py in Java.
 */
public class ReportServer {
    record Row(int number, byte[] part) {}

    static final int CACHED = 200;
    static final ArrayDeque<byte[]> CACHE = new ArrayDeque<>();

    static byte[] report(int rows, int seed) {
        Random draw = new Random(seed);
        List<Row> table = new ArrayList<>();
        for (int i = 0; i < rows; i++) {
            table.add(new Row(i, new byte[200 + draw.nextInt(5800)]));
        }
        StringBuilder text = new StringBuilder("[");
        for (Row row : table) {
            text.append(row.number == 0 ? "" : ", ");
            text.append("{\"row\": ").append(row.number).append(", \"size\": ").append(row.part.length);
            text.append(", \"text\": \"").append("x".repeat(row.part.length / 8)).append("\"}");
        }
        return text.append("]").toString().getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 128);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/report/", exchange -> {
            int number = Integer.parseInt(exchange.getRequestURI().getPath().substring("/report/".length()));
            byte[] body = report(100 + number % 400, number);
            synchronized (CACHE) {
                CACHE.addLast(body);
                if (CACHE.size() > CACHED) {
                    CACHE.removeFirst();
                }
            }
            exchange.sendResponseHeaders(200, body.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.start();
    }
}

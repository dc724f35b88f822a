import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;
import org.postgresql.util.DriverInfo;

/**
 * pgjdbc comes in by every way that it knows; a line of JSON for each. See ways.py; the ways are
 * lines here, with tabs between what ways.py finds in JSON.
 */
public class Ways {
    public static void main(String[] arguments) {
        String[] lines = System.getenv("WAYS").split("\n");
        String[] all = lines[0].split("\t");
        String port = all[0], password = all[1], certificate = all[2], sql = all[3];
        for (int number = 1; number < lines.length; number++) {
            String[] way = lines[number].split("\t", -1);
            String tls = way[0], host = way[3], user = way[4], options = way[5];
            Properties properties = new Properties();
            switch (tls) {
                case "plain" -> properties.setProperty("sslmode", "disable");
                case "encrypted" -> properties.setProperty("sslmode", "require");
                case "verified" -> {
                    properties.setProperty("sslmode", "verify-full");
                    properties.setProperty("sslrootcert", certificate);
                }
                default -> {
                    continue;
                }
            }
            properties.setProperty("user", user);
            properties.setProperty("password", password);
            properties.setProperty("connectTimeout", "60");
            if (!options.isEmpty()) {
                properties.setProperty("options", options);
            }
            String outcome;
            String url = "jdbc:postgresql://" + host + ":" + port + "/app";
            try (var connection = DriverManager.getConnection(url, properties);
                    var statement = connection.prepareStatement(sql);
                    var rows = statement.executeQuery()) {
                rows.next();
                outcome = "\"answer\": " + quoted(rows.getString(1));
            } catch (SQLException error) {
                outcome = "\"error\": " + quoted(error.toString());
            }
            System.out.printf(
                    "{\"client\": %s, \"tls\": %s, \"route\": %s, \"pool\": %s, %s}%n",
                    quoted("pgjdbc " + DriverInfo.DRIVER_VERSION), quoted(tls), quoted(way[1]), quoted(way[2]), outcome);
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s", " ") + '"';
    }
}

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataTypes;

/**
 * Folds the changes of scripts/bench join with Paimon's partial-update engine. Commands come line by line: `load`, which
 * writes a compacted base and the changes above it, `compact`, the work that is timed, `back`, which takes that back, and
 * `dump FILE`. Arguments: a folder, and columns as `name:type:group`, of which those without a group come first.
 */
public class PaimonJoin {
    private static final int BUCKETS = 4;
    private static final List<String[]> COLUMNS = new ArrayList<>();
    private static FileStoreTable table;
    private static String folder;

    public static void main(String[] arguments) throws Exception {
        folder = arguments[0];
        for (int number = 1; number < arguments.length; number++) {
            COLUMNS.add(arguments[number].split(":", -1));
        }
        Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(new Path("file://" + folder + "/warehouse")));
        catalog.createDatabase("bench", true);
        Identifier name = Identifier.create("bench", "requests");
        catalog.createTable(name, schema(), false);
        table = (FileStoreTable) catalog.getTable(name);
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ", 2);
            switch (words[0]) {
                case "load":
                    write("base");
                    compact();
                    for (String group : groups().keySet()) {
                        write(group);
                    }
                    break;
                case "compact":
                    compact();
                    break;
                case "back":
                    table.rollbackTo(table.snapshotManager().latestSnapshotId() - 1);
                    break;
                default:
                    dump(words[1]);
            }
            System.out.println("done");
        }
    }

    private static Map<String, List<String>> groups() {
        Map<String, List<String>> found = new HashMap<>();
        for (String[] column : COLUMNS) {
            if (!column[2].isEmpty()) {
                found.computeIfAbsent(column[2], key -> new ArrayList<>()).add(column[0]);
            }
        }
        return found;
    }

    /** The first column of a group is its sequence. The least time needs a sequence, too, which is always 1. */
    private static Schema schema() {
        Schema.Builder schema = Schema.newBuilder().primaryKey(COLUMNS.get(0)[0]);
        for (String[] column : COLUMNS) {
            switch (column[1]) {
                case "string":
                    schema.column(column[0], DataTypes.STRING());
                    break;
                case "timestamp":
                    schema.column(column[0], DataTypes.TIMESTAMP(3));
                    break;
                case "integer":
                    schema.column(column[0], DataTypes.INT());
                    break;
                case "double":
                    schema.column(column[0], DataTypes.DOUBLE());
                    break;
                default:
                    schema.column(column[0], DataTypes.BIGINT());
            }
        }
        schema.column("one", DataTypes.INT());
        schema.option("fields.one.sequence-group", COLUMNS.get(1)[0]);
        schema.option("fields." + COLUMNS.get(1)[0] + ".aggregate-function", "min");
        for (List<String> names : groups().values()) {
            schema.option("fields." + names.get(0) + ".sequence-group", String.join(",", names.subList(1, names.size())));
        }
        schema.option("merge-engine", "partial-update");
        schema.option("bucket", String.valueOf(BUCKETS));
        schema.option("file.format", "parquet");
        schema.option("file.compression", "zstd");
        schema.option("file.compression.zstd-level", "1");
        schema.option("write-buffer-size", "64 mb");
        schema.option("write-only", "true");
        return schema.build();
    }

    private static void write(String name) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit();
                BufferedReader lines = Files.newBufferedReader(Paths.get(folder, name + ".tsv"))) {
            write.withIOManager(IOManager.create(folder));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                write.write(row(name, line.split("\t", -1)));
            }
            commit.commit(write.prepareCommit());
        }
    }

    /** A line has all columns, or those without a group and those of its own. */
    private static GenericRow row(String name, String[] values) {
        GenericRow row = new GenericRow(COLUMNS.size() + 1);
        int place = 0;
        for (int number = 0; number < COLUMNS.size(); number++) {
            String[] column = COLUMNS.get(number);
            if (column[2].isEmpty() || name.equals("base") || name.equals(column[2])) {
                row.setField(number, value(column[1], values[place++]));
            }
        }
        row.setField(COLUMNS.size(), 1);
        return row;
    }

    private static Object value(String type, String text) {
        if (text.equals("\\N")) {
            return null;
        }
        switch (type) {
            case "string":
                return BinaryString.fromString(text);
            case "timestamp":
                return Timestamp.fromEpochMillis(Long.parseLong(text));
            case "integer":
                return Integer.valueOf(text);
            case "double":
                return Double.valueOf(text);
            default:
                return Long.valueOf(text);
        }
    }

    private static void compact() throws Exception {
        BatchWriteBuilder builder = table.copy(Map.of("write-only", "false")).newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(folder));
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                write.compact(BinaryRow.EMPTY_ROW, bucket, true);
            }
            commit.commit(write.prepareCommit());
        }
    }

    private static void dump(String file) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(builder.newScan().plan());
                BufferedWriter lines = Files.newBufferedWriter(Paths.get(file))) {
            reader.forEachRemaining(row -> {
                StringBuilder line = new StringBuilder();
                for (int number = 0; number < COLUMNS.size(); number++) {
                    line.append(number == 0 ? "" : "\t").append(text(row, number, COLUMNS.get(number)[1]));
                }
                try {
                    lines.write(line.append('\n').toString());
                } catch (java.io.IOException error) {
                    throw new RuntimeException(error);
                }
            });
        }
    }

    private static Object text(InternalRow row, int place, String type) {
        if (row.isNullAt(place)) {
            return "\\N";
        }
        switch (type) {
            case "string":
                return row.getString(place);
            case "timestamp":
                return row.getTimestamp(place, 3).getMillisecond();
            case "integer":
                return row.getInt(place);
            case "double":
                return row.getDouble(place);
            default:
                return row.getLong(place);
        }
    }
}

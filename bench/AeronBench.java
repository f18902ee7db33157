// Throughput of Aeron with an embedded media driver in shared mode, our own yardstick.
// AeronBench send CHANNEL SIZE SECONDS | AeronBench recv CHANNEL SIZE SECONDS
// Each message begins with its number; the receiver counts messages and breaks in the numbers.
import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.ByteBuffer;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

public class AeronBench {
    static final int STREAM = 10;

    public static void main(String[] args) throws Exception {
        final String mode = args[0];
        final MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName("/dev/shm/aeron-bench-" + ProcessHandle.current().pid())
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(new BusySpinIdleStrategy())
            .termBufferSparseFile(false)
            .socketRcvbufLength(4 << 20)
            .socketSndbufLength(2 << 20)
            .initialWindowLength(4 << 20)
            .mtuLength(1440);
        try (MediaDriver driver = MediaDriver.launch(context);
            Aeron aeron = Aeron.connect(
                new Aeron.Context().aeronDirectoryName(context.aeronDirectoryName()))) {
            final int size = Integer.parseInt(args[2]);
            final long length = (long) (Double.parseDouble(args[3]) * 1e9);
            if (mode.equals("send")) {
                send(aeron, args[1], size, length);
            } else {
                receive(aeron, args[1], length);
            }
        }
    }

    static void send(Aeron aeron, String channel, int size, long length) throws Exception {
        final UnsafeBuffer buffer = new UnsafeBuffer(ByteBuffer.allocateDirect(65536));
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM)) {
            while (!publication.isConnected()) {
                Thread.sleep(10);
            }
            final long end = System.nanoTime() + length;
            long sent = 0;
            while (System.nanoTime() < end) {
                for (int i = 0; i < 64; i++) {
                    buffer.putLong(0, sent);
                    if (publication.offer(buffer, 0, size) > 0) {
                        sent++;
                    }
                }
            }
            System.out.println("sent " + sent);
            Thread.sleep(1000);
        }
    }

    static void receive(Aeron aeron, String channel, long length) {
        final long[] seen = new long[4]; // count, last number, breaks, first time
        final FragmentHandler handler = (buffer, offset, bytes, header) -> {
            final long number = buffer.getLong(offset);
            if (number != seen[1] + (seen[0] > 0 ? 1 : 0)) {
                seen[2]++;
            }
            seen[1] = number;
            if (seen[0] == 0) {
                seen[3] = System.nanoTime();
            }
            seen[0]++;
        };
        try (Subscription subscription = aeron.addSubscription(channel, STREAM)) {
            final FragmentAssembler assembler = new FragmentAssembler(handler);
            final long end = System.nanoTime() + length;
            long last = System.nanoTime();
            while (System.nanoTime() < end) {
                if (subscription.poll(assembler, 256) > 0) {
                    last = System.nanoTime();
                }
            }
            System.out.printf("received %d breaks %d rate %.0f%n",
                seen[0], seen[2], seen[0] / ((last - seen[3]) * 1e-9));
        }
    }
}

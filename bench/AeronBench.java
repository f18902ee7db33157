// Throughput of Aeron with an embedded media driver in shared mode, our own yardstick.
// AeronBench send CHANNEL SIZE SECONDS | AeronBench recv CHANNEL SIZE SECONDS
// AeronBench tails CHANNEL SIZE SECONDS PPS | AeronBench tailr CHANNEL SIZE SECONDS: one-way delays
// Each message begins with its number; the receiver counts messages and breaks in the numbers.
import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.ByteBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
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
            .sharedIdleStrategy(mode.startsWith("tail") ? idle() : new BusySpinIdleStrategy())
            .nakMulticastMaxBackoffNs(mode.startsWith("tail") ? 500_000 : 10_000_000)
            .nakMulticastGroupSize(mode.startsWith("tail") ? 3 : 10)
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
            if (mode.equals("tails")) {
                sendOnTime(aeron, args[1], size, length, 1e9 / Double.parseDouble(args[4]));
            } else if (mode.equals("tailr")) {
                receiveDelays(aeron, args[1], length);
            } else if (mode.equals("send")) {
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

    /** Four programs share two cores: who has nothing to do lets the others run. */
    static IdleStrategy idle() {
        return new BackoffIdleStrategy(10, 10, 1_000, 50_000);
    }

    static void sendOnTime(Aeron aeron, String channel, int size, long length, double interval)
        throws Exception {
        final UnsafeBuffer buffer = new UnsafeBuffer(ByteBuffer.allocateDirect(65536));
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM)) {
            while (!publication.isConnected()) {
                Thread.sleep(10);
            }
            Thread.sleep(1000);
            final long start = System.nanoTime();
            long sent = 0;
            while (sent * interval < length) {
                final long due = start + (long) (sent * interval);
                final long wait = due - System.nanoTime();
                if (wait > 15_000) {
                    java.util.concurrent.locks.LockSupport.parkNanos(10_000);
                }
                if (wait > 0) {
                    continue;
                }
                buffer.putLong(0, sent);
                buffer.putLong(8, due);
                if (publication.offer(buffer, 0, size) > 0) {
                    sent++;
                }
            }
            System.out.println("sent " + sent);
            Thread.sleep(1000);
        }
    }

    static void receiveDelays(Aeron aeron, String channel, long length) {
        final long[] delays = new long[1 << 22];
        final long[] seen = new long[3]; // count, last number, missing
        final FragmentHandler handler = (buffer, offset, bytes, header) -> {
            final long number = buffer.getLong(offset);
            seen[2] += Math.max(0, number - seen[1] - (seen[0] > 0 ? 1 : 0));
            seen[1] = number;
            if (seen[0] < delays.length) {
                delays[(int) seen[0]++] = System.nanoTime() - buffer.getLong(offset + 8);
            }
        };
        try (Subscription subscription = aeron.addSubscription(channel, STREAM)) {
            final FragmentAssembler assembler = new FragmentAssembler(handler);
            final IdleStrategy idle = idle();
            final long end = System.nanoTime() + length;
            while (System.nanoTime() < end) {
                idle.idle(subscription.poll(assembler, 256));
            }
        }
        final int n = (int) seen[0];
        final long late = java.util.Arrays.stream(delays, 0, n).filter(d -> d > 500_000).count();
        java.util.Arrays.sort(delays, 0, n);
        System.out.printf("late %d missing %d sent %d got %d rtt us", late, seen[2], seen[1] + 1, n);
        for (double at : new double[] {50, 90, 99, 99.9}) {
            final int index = n == 0 ? 0 : (int) Math.min(n - 1, n * at / 100);
            System.out.printf(java.util.Locale.ROOT, " p%s %.1f", at == 99.9 ? "99.9" : String.valueOf((int) at), delays[index] / 1e3);
        }
        System.out.printf(" max %.1f%n", (n == 0 ? 0 : delays[n - 1]) / 1e3);
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

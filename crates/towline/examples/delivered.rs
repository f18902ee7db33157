//! A TCP connection in tokio whose bytes are proven, and how far they have got so far.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, net::TcpListener, time::Duration};

use towline::AsyncDeliveredStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let to = listener.local_addr()?;
    let mut writer = AsyncDeliveredStream::connect(to, PATIENCE).await?;
    // It has connected, so this does not wait.
    let mut reader = AsyncDeliveredStream::new(listener.accept()?.0, PATIENCE)?;
    let reading = tokio::spawn(async move {
        let (mut bytes, mut room) = (0, vec![0; 50_000]);
        loop {
            match reader.read(&mut room).await? {
                0 => return Ok::<usize, std::io::Error>(bytes),
                count => bytes += count,
            }
        }
    });
    let piece = [7; 100_000];
    for _ in 0..PIECES {
        writer.write_all(&piece).await?;
    }
    let progress = writer.progress();
    println!("written      {:>9}", progress.written_bytes);
    println!("sent         {:>9}", progress.sent_bytes);
    println!("acknowledged {:>9}", progress.acknowledged_bytes);
    println!("confirmed    {:>9}", progress.confirmed_bytes);
    let proof = writer.finish(PATIENCE).await?;
    assert_eq!(reading.await??, PIECES * piece.len());
    println!("proven       {:>9}", proof.bytes);
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(10);
const PIECES: usize = 200;

//! Streams of video.

use video::{Container, VideoReader, VideoWriter, y4m::Header};

/// Reads any bytes as a stream of Y4M and as a header line. What is read is bounded, texts have no
/// control characters, and the frames are the same when they are written and read again.
///
/// **Panics**: when one of these conditions fails.
pub fn stream(bytes: &[u8]) {
    match Header::parse(bytes) {
        Ok(header) => assert_label(&header),
        Err(error) => assert_plain(&error),
    }
    let mut reader = match VideoReader::y4m(bytes) {
        Ok(reader) => reader,
        Err(error) => return assert_plain(&error),
    };
    let header = reader.header().clone();
    assert_label(&header);
    let frame_bytes = header.shape().frame_bytes();
    if frame_bytes > bytes.len() {
        // No whole frame fits, and room for one would only take time.
        return;
    }
    let (frames, is_sound) = frames(&mut reader, frame_bytes);
    let mut writer = VideoWriter::new(Vec::new(), Container::Y4m, &header).expect("it was Y4M");
    for frame in &frames {
        writer.write_frame(frame).expect("memory takes all");
    }
    let written = writer.finish().expect("memory takes all");
    assert!(written.len() <= bytes.len(), "it is no longer than it was");
    let mut again = VideoReader::y4m(&written[..]).expect("our own header");
    assert_eq!(again.header(), &header);
    assert_eq!(self::frames(&mut again, frame_bytes), (frames, true));
    assert!(!is_sound || bytes.starts_with(header.line().as_bytes()));
}

/// Reads all frames up to the end or the first fault. Returns them, and true when there was no
/// fault.
fn frames(reader: &mut VideoReader<&[u8]>, frame_bytes: usize) -> (Vec<Vec<u8>>, bool) {
    let mut frames = Vec::new();
    let mut frame = vec![0; frame_bytes];
    loop {
        match reader.read_frame(&mut frame) {
            Ok(true) => frames.push(frame.clone()),
            Ok(false) => return (frames, true),
            Err(error) => {
                assert_plain(&error);
                return (frames, false);
            }
        }
    }
}

fn assert_label(header: &Header) {
    let label = header.label();
    assert!(label.len() <= Header::LABEL_BYTES_MAX);
    let told = Header::parse(label.as_bytes()).expect("a label is a line");
    assert_eq!((told.shape(), told.rate()), (header.shape(), header.rate()));
}

fn assert_plain(error: &video::VideoError) {
    let text = error.to_string();
    assert!(
        text.chars().all(base::text::is_plain),
        "no commands: {text:?}"
    );
    assert!(text.len() < 1_024, "a line of a report");
}

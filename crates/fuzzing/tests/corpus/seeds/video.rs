//! A stream as FFmpeg writes it, one with frames that have parameters, and a line for raw frames.

use base::Rng;
use video::{Container, FrameRate, PixelFormat, Shape, VideoWriter, y4m::Header};

use super::write;

pub(super) fn write_all() {
    let header = Header::parse(b"YUV4MPEG2 W3 H3 F25:1 Ip A1:1 C420jpeg XYSCSS=420JPEG")
        .expect("a usual line");
    write("video_stream", "planes", &stream(&header, 2));
    let shape = Shape::new(8, 1, PixelFormat::Mono16).expect("small");
    let grey = Header::new(shape, FrameRate::new(31, 2));
    write("video_stream", "grey", &stream(&grey, 1));
    let odd = b"YUV4MPEG2 H2 W2 F0:0 I? A0:0 Cmono X\nFRAME Ixyz X \n0123FRAME\n4567FRAME\n89";
    write("video_stream", "odd_and_cut", odd);
    let shape = Shape::new(1360, 1024, PixelFormat::Mono12p).expect("small");
    let raw = Header::new(shape, FrameRate::new(31, 2));
    write("video_stream", "raw_line", raw.line().as_bytes());
}

fn stream(header: &Header, frames: u64) -> Vec<u8> {
    let mut writer = VideoWriter::new(Vec::new(), Container::Y4m, header).expect("one of Y4M");
    let mut frame = vec![0; header.shape().frame_bytes()];
    for number in 0..frames {
        Rng::new(number).fill(&mut frame);
        writer.write_frame(&frame).expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

//! Portable Network Graphics (ISO/IEC 15948): one byte for each dot when the picture has at most
//! 256 colours, three otherwise.

use std::{collections::BTreeMap, io::Write as _};

use flate2::{Compression, Crc, write::ZlibEncoder};

use super::{Scene, canvas::Canvas, palette::Colour};

/// Draws a scene as a PNG file.
///
/// **Cost**: three bytes of memory for each dot, and some 50 ms for two million dots.
#[must_use]
pub fn png(scene: &Scene) -> Vec<u8> {
    encode(&Canvas::draw(scene))
}

pub(super) fn encode(canvas: &Canvas) -> Vec<u8> {
    let palette = palette(canvas);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    for side in [canvas.width, canvas.height] {
        let side = u32::try_from(side).expect("scenes have 32-bit sides");
        header.extend_from_slice(&side.to_be_bytes());
    }
    let colour_type = if palette.is_some() { 3 } else { 2 };
    header.extend_from_slice(&[8, colour_type, 0, 0, 0]);
    chunk(&mut file, *b"IHDR", &header);
    let mut lines = Vec::with_capacity(canvas.dots.len() + canvas.height);
    for line in canvas.dots.chunks(canvas.width.max(1)) {
        // Filter 0 changes nothing: areas of one colour compress best as they are.
        lines.push(0);
        match &palette {
            Some(palette) => lines.extend(line.iter().map(|colour| palette[colour])),
            None => lines.extend(line.iter().flatten()),
        }
    }
    if let Some(palette) = &palette {
        let mut colours = vec![0; palette.len() * 3];
        for (colour, &index) in palette {
            colours[usize::from(index) * 3..][..3].copy_from_slice(colour);
        }
        chunk(&mut file, *b"PLTE", &colours);
    }
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::best());
    let packed = deflate.write_all(&lines).and_then(|()| deflate.finish());
    chunk(
        &mut file,
        *b"IDAT",
        &packed.expect("writing to memory cannot fail"),
    );
    chunk(&mut file, *b"IEND", &[]);
    file
}

/// Returns a number for each colour; `None` when there are more than 256 colours.
fn palette(canvas: &Canvas) -> Option<BTreeMap<Colour, u8>> {
    let mut palette = BTreeMap::new();
    for &colour in &canvas.dots {
        if !palette.contains_key(&colour) {
            let index = u8::try_from(palette.len()).ok()?;
            palette.insert(colour, index);
        }
    }
    Some(palette)
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], body: &[u8]) {
    let len = u32::try_from(body.len()).expect("a picture is smaller than 4 GiB");
    file.extend_from_slice(&len.to_be_bytes());
    file.extend_from_slice(&kind);
    file.extend_from_slice(body);
    let mut crc = Crc::new();
    crc.update(&kind);
    crc.update(body);
    file.extend_from_slice(&crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// The dots of a picture that `encode` made.
    fn decode(file: &[u8]) -> Vec<Colour> {
        let (mut colours, mut packed, mut at) = (Vec::new(), Vec::new(), 8);
        let mut width = 0;
        while at < file.len() {
            let len = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
            let body = &file[at + 8..at + 8 + len];
            match &file[at + 4..at + 8] {
                b"IHDR" => width = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize,
                b"PLTE" => colours = body.to_vec(),
                b"IDAT" => packed = body.to_vec(),
                _ => {}
            }
            at += 12 + len;
        }
        let mut lines = Vec::new();
        ZlibDecoder::new(&packed[..])
            .read_to_end(&mut lines)
            .unwrap();
        let step = if colours.is_empty() { 3 } else { 1 };
        let dot = |dot: &[u8]| match dot {
            [index] => colours[usize::from(*index) * 3..][..3].try_into().unwrap(),
            dot => dot.try_into().unwrap(),
        };
        let lines = lines.chunks(1 + width * step);
        lines
            .flat_map(|line| line[1..].chunks(step).map(dot))
            .collect()
    }

    #[test]
    fn dots_come_back_with_few_colours_and_with_many() {
        for colours in [3, 1_000_u32] {
            let dots: Vec<Colour> = (0..1_200)
                .map(|n| [(n % colours) as u8, ((n % colours) >> 8) as u8, 9])
                .collect();
            let canvas = Canvas {
                width: 40,
                height: 30,
                dots: dots.clone(),
            };
            assert_eq!(decode(&encode(&canvas)), dots);
        }
    }
}

//! Show the images of which predictions are least sure.

use consilience_engine::calibration::UncertainImage;
use maud::{Markup, PreEscaped, html};

use crate::plot::STYLE;
use crate::words::decimals;

/// Images side by side, and how wide and tall one is with its words, in pixels.
const ACROSS: usize = 6;
const SIDE: f64 = 84.0;
const WIDE: f64 = 120.0;
const TALL: f64 = 136.0;
/// Shades that are told apart.
const SHADES: usize = 8;

/// All of them as one picture, in the look of the page around it.
pub fn picture(images: &[UncertainImage]) -> Markup {
    drawn(images, false)
}

/// The same as a file of its own.
pub fn alone(images: &[UncertainImage]) -> String {
    drawn(images, true).into_string()
}

fn drawn(images: &[UncertainImage], alone: bool) -> Markup {
    let columns = images.len().clamp(1, ACROSS);
    let (width, height) = (columns as f64 * WIDE, images.len().div_ceil(ACROSS) as f64 * TALL);
    let says = "Held-out images of which predictions are least sure";
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label=(says)
            font-family="system-ui, sans-serif" viewBox={ "0 0 " (width) " " (height) }
            style={ "max-width:" (width) "px" } width="100%" {
            title { (says) }
            @if alone {
                style { (PreEscaped(STYLE)) }
                rect.page width="100%" height="100%" {}
            }
            @for (k, image) in images.iter().enumerate() {
                g transform={ "translate(" (WIDE * (k % columns) as f64) ","
                    (TALL * (k / columns) as f64) ")" } {
                    (one(image))
                }
            }
        }
    }
}

fn one(image: &UncertainImage) -> Markup {
    let (height, width) = image.size;
    let scale = SIDE / height.max(width).max(1) as f64;
    let said = |(class, p): &(usize, f64)| format!("{class}? {}%", decimals(100.0 * p, 0));
    let first: Vec<String> = image.said.iter().take(2).map(said).collect();
    let middle = WIDE / 2.0;
    html! {
        title { "row " (image.row + 1) " of those held out, of class " (image.label) }
        g transform={ "translate(" ((WIDE - SIDE) / 2.0) ",4) scale(" (decimals(scale, 4)) ")" } {
            @for shade in 1..=SHADES {
                @let path = squares(image, shade);
                @if !path.is_empty() {
                    path.ink fill-opacity=(decimals(shade as f64 / SHADES as f64, 3)) d=(path) {}
                }
            }
        }
        text.middle x=(middle) y=(SIDE + 19.0) { (first.join(", ")) }
        text.middle.dim x=(middle) y=(SIDE + 35.0) { "is " (image.label) }
    }
}

/// The pixels of one shade, runs of them as one rectangle each.
fn squares(image: &UncertainImage, shade: usize) -> String {
    let shade_of = |pixel: u8| (usize::from(pixel) * SHADES + 127) / 255;
    let mut path = String::new();
    for (y, row) in image.pixels.chunks(image.size.1.max(1)).enumerate() {
        let mut x = 0;
        for run in row.chunk_by(|a, b| shade_of(*a) == shade_of(*b)) {
            if shade_of(run[0]) == shade {
                path.push_str(&format!("M{x} {y}h{}v1h-{}z", run.len(), run.len()));
            }
            x += run.len();
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_a_shade_are_joined_along_a_row() {
        let pixels = vec![255, 255, 0, 128, 0, 255];
        let image = UncertainImage { row: 0, label: 0, size: (2, 3), pixels, said: Vec::new() };
        assert_eq!(squares(&image, SHADES), "M0 0h2v1h-2zM2 1h1v1h-1z");
        assert_eq!(squares(&image, 4), "M0 1h1v1h-1z");
        assert_eq!(squares(&image, 0), "M2 0h1v1h-1zM1 1h1v1h-1z");
    }
}

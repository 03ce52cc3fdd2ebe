//! Format a time in UTC.

use std::time::SystemTime;

use time::OffsetDateTime;

/// A moment in UTC, such as `2026-01-31T12:00:00Z`.
pub fn utc(moment: SystemTime) -> String {
    let moment = OffsetDateTime::from(moment);
    let ((year, month, day), (hour, minute, second)) = (moment.to_calendar_date(), moment.to_hms());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn moments_that_are_known() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}

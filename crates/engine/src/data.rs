//! stub
#![allow(missing_docs)]
pub mod builtin {
    use consilience_core::{error::DataError, model::Glm};
    pub struct SiteData {
        pub name: String,
    }
    impl SiteData {
        pub fn logistic(&self) -> Result<Glm, DataError> {
            Err(DataError::Empty)
        }
    }
    pub struct Federation {
        pub parameters: Vec<String>,
        pub sites: Vec<SiteData>,
        pub notes: Vec<String>,
        pub exchanged_bits_up: u64,
        pub exchanged_bits_down: u64,
    }
    pub fn names() -> Vec<&'static str> {
        vec!["heart-disease"]
    }
    pub fn load(_: &str) -> Result<Federation, DataError> {
        Err(DataError::Empty)
    }
}

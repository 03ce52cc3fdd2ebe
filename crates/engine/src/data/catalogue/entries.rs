//! The rows of the catalogue.

use super::{Entry, Format, Part};

/// Every data set that is known by name.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "heart-disease",
        says: "four hospitals, heart disease or not",
        columns: 18,
        classes: &["healthy", "ill"],
        train: Part {
            files: &[
                (
                    "heart-disease/processed.cleveland.data",
                    "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
                ),
                (
                    "heart-disease/processed.hungarian.data",
                    "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
                ),
                (
                    "heart-disease/processed.switzerland.data",
                    "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
                ),
                (
                    "heart-disease/processed.va.data",
                    "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
                ),
            ],
            rows: 920,
            counts: &[411, 509],
        },
        test: None,
        built_in: true,
        licence: "CC BY 4.0 (UCI); publications should name Janosi, Steinbrunn, Pfisterer and \
            Detrano",
        format: Format::Builtin,
    },
    Entry {
        name: "titanic",
        says: "passengers and crew, survived or not",
        columns: 5,
        classes: &["died", "survived"],
        train: Part {
            files: &[(
                "titanic/titanic.csv",
                "be87eb39ca54dd8d0bf36728d9707c1aa38d0b23decf3fe1c96f0f0f1c6b29e2",
            )],
            rows: 2201,
            counts: &[1490, 711],
        },
        test: None,
        built_in: true,
        licence: "a table of facts (KEEL; R's Titanic)",
        format: Format::Builtin,
    },
    Entry {
        name: "breast-cancer",
        says: "Wisconsin diagnostic breast cancer, malignant or not",
        columns: 30,
        classes: &["benign", "malignant"],
        train: Part {
            files: &[(
                "breast-cancer/wdbc.csv",
                "9173fe82f7401ba1007c73f4888db17fb6ce4683795c8ec95814ac4e4ce2410d",
            )],
            rows: 569,
            counts: &[357, 212],
        },
        test: None,
        built_in: true,
        licence: "CC BY 4.0 (UCI), as in scikit-learn",
        format: Format::Builtin,
    },
    Entry {
        name: "mnist",
        says: "handwritten digits, 28 x 28 pixels in [0, 1]",
        columns: 784,
        classes: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        train: Part {
            files: &[
                (
                    "mnist/train-images-idx3-ubyte.xz",
                    "a314ef4911dc48ff34b8e6b8634dd2de0c7d835b0996fee8dd7475642e18b2af",
                ),
                (
                    "mnist/train-labels-idx1-ubyte.xz",
                    "20a7a3cc7dd59f68da0e5f812baaf1774a0f4dc4a555d067f6d4772b900b6184",
                ),
            ],
            rows: 60000,
            counts: &[5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        },
        test: Some(Part {
            files: &[
                (
                    "mnist/t10k-images-idx3-ubyte.xz",
                    "2e172d227f2cfdb1ae0cbe0833d6585d60c84ab5da5e711dba99061cd3adbc37",
                ),
                (
                    "mnist/t10k-labels-idx1-ubyte.xz",
                    "3a73558704f83efcff5ccbf398196652ae45ae612cd5f29e24f20d6c2f760ca6",
                ),
            ],
            rows: 10000,
            counts: &[980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        }),
        built_in: false,
        licence: "CC BY-SA 3.0",
        format: Format::Idx,
    },
    Entry {
        name: "fashion-mnist",
        says: "articles of clothing, 28 x 28 pixels in [0, 1]",
        columns: 784,
        classes: &[
            "T-shirt",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ],
        train: Part {
            files: &[
                (
                    "fashion-mnist/train-images-idx3-ubyte.xz",
                    "044808347e33a158e33f6beec61107576178bb848f9f206d0d5fd3b16f6b74c1",
                ),
                (
                    "fashion-mnist/train-labels-idx1-ubyte.xz",
                    "ce4bb98e345d2411c987979234340b46c2fb77a9ecc02d36e0db8d6ee7e909d9",
                ),
            ],
            rows: 60000,
            counts: &[6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000],
        },
        test: Some(Part {
            files: &[
                (
                    "fashion-mnist/t10k-images-idx3-ubyte.xz",
                    "8fbff2c99f6a9b76b9dfae8ae9685708132dee74eea6e6547f07988e580d3d10",
                ),
                (
                    "fashion-mnist/t10k-labels-idx1-ubyte.xz",
                    "4a6d74f00125d777758b0219aaf354168006df0112fe5940fc00d936e5e306ca",
                ),
            ],
            rows: 10000,
            counts: &[1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000],
        }),
        built_in: false,
        licence: "MIT",
        format: Format::Idx,
    },
    Entry {
        name: "a8a",
        says: "UCI Adult as LIBSVM has it, income above 50,000 or not",
        columns: 123,
        classes: &["-1", "+1"],
        train: Part {
            files: &[(
                "a8a/a8a.xz",
                "643ea38ea8d85d6f0bf1cce4c2205e257886254188f6dc78257f972e8b47d2f0",
            )],
            rows: 22696,
            counts: &[17190, 5506],
        },
        test: Some(Part {
            files: &[(
                "a8a/a8a.t.xz",
                "4ebb0c3bc9cb00c5b4f6303ea3b62c4db3d5e36f865a60677617d492209e7444",
            )],
            rows: 9865,
            counts: &[7530, 2335],
        }),
        built_in: false,
        licence: "CC BY 4.0 (UCI)",
        format: Format::Libsvm(&[-1.0, 1.0]),
    },
    Entry {
        name: "a9a",
        says: "UCI Adult as LIBSVM has it, income above 50,000 or not",
        columns: 123,
        classes: &["-1", "+1"],
        train: Part {
            files: &[(
                "a9a/a9a.xz",
                "19080432184009d380885f525b1b65a66f4d153335d5f5abfe961064705f7cd0",
            )],
            rows: 32561,
            counts: &[24720, 7841],
        },
        test: Some(Part {
            files: &[(
                "a9a/a9a.t.xz",
                "ba7931698b580bb1d7c56364345935d9e4a7e05845547112b946376ed61ce649",
            )],
            rows: 16281,
            counts: &[12435, 3846],
        }),
        built_in: false,
        licence: "CC BY 4.0 (UCI)",
        format: Format::Libsvm(&[-1.0, 1.0]),
    },
    Entry {
        name: "mushrooms",
        says: "mushrooms as LIBSVM has them, poisonous (1) or edible (2)",
        columns: 112,
        classes: &["poisonous", "edible"],
        train: Part {
            files: &[(
                "mushrooms/mushrooms.xz",
                "908ae98ea90ab03e0ac93a72e7a1457e5b6d20be605a977676e71f74148f4d94",
            )],
            rows: 8124,
            counts: &[3916, 4208],
        },
        test: None,
        built_in: false,
        licence: "CC BY 4.0 (UCI)",
        format: Format::Libsvm(&[1.0, 2.0]),
    },
    Entry {
        name: "covtype",
        says: "forest cover types, 10 numbers and two one-hot codes; rows are not in random order",
        columns: 54,
        classes: &[
            "spruce/fir",
            "lodgepole pine",
            "ponderosa pine",
            "cottonwood/willow",
            "aspen",
            "douglas-fir",
            "krummholz",
        ],
        train: Part {
            files: &[(
                "covtype/covtype.cols.xz",
                "9f75f3eb83e24f2f4c01fb98c084fac7abdac05b535383f3e71eb0ffa5d2b9e1",
            )],
            rows: 581012,
            counts: &[211840, 283301, 35754, 2747, 9493, 17367, 20510],
        },
        test: None,
        built_in: false,
        licence: "copyright Jock A. Blackard and Colorado State University; reuse unlimited with \
            this notice",
        format: Format::Covtype,
    },
    Entry {
        name: "cifar10",
        says: "a subset of CIFAR-10, 3 x 32 x 32 colours in [0, 1]",
        columns: 3072,
        classes: &[
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ],
        train: Part {
            files: &[(
                "cifar10/train-3000.bin.xz",
                "28a64fa1a565fb4302e684fd63fe64b45903cda7fd4daf5cea056f13e82081a3",
            )],
            rows: 3000,
            counts: &[300, 300, 300, 300, 300, 300, 300, 300, 300, 300],
        },
        test: Some(Part {
            files: &[(
                "cifar10/test-600.bin.xz",
                "af75c58a80e39d411049a019b4c924a9f4ffdbb755bd30e8d5f1d46fb14a631c",
            )],
            rows: 600,
            counts: &[60, 60, 60, 60, 60, 60, 60, 60, 60, 60],
        }),
        built_in: false,
        licence: "none stated by its authors; cite Krizhevsky 2009",
        format: Format::Cifar,
    },
    Entry {
        name: "diabetes",
        says: "progression of diabetes after a year, in raw units (regression)",
        columns: 10,
        classes: &[],
        train: Part {
            files: &[(
                "diabetes/diabetes.csv",
                "9193026b7622ff944f0a6855a10107b24caf50dad69787c46e6890e69c27faca",
            )],
            rows: 442,
            counts: &[],
        },
        test: None,
        built_in: false,
        licence: "none stated; Efron et al. 2004, as in scikit-learn",
        format: Format::Csv("progression"),
    },
    Entry {
        name: "pima",
        says: "diabetes among Pima women, or not; a 0 in glucose, pressure, triceps, insulin and \
            mass means missing",
        columns: 8,
        classes: &["healthy", "diabetic"],
        train: Part {
            files: &[(
                "diabetes/pima.csv",
                "b0502e39e0eaf5698708ad3f09474ccdb45a75eb0a85caa0eeb7ac3e923445a6",
            )],
            rows: 768,
            counts: &[500, 268],
        },
        test: None,
        built_in: false,
        licence: "GPL-2, as in R's mlbench",
        format: Format::Csv("diabetes"),
    },
    Entry {
        name: "german-credit",
        says: "good or bad credit, 24 whole numbers",
        columns: 24,
        classes: &["good", "bad"],
        train: Part {
            files: &[(
                "german-credit/german.data-numeric",
                "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8",
            )],
            rows: 1000,
            counts: &[700, 300],
        },
        test: None,
        built_in: false,
        licence: "CC BY 4.0 (UCI)",
        format: Format::German,
    },
];

//! List the workloads by the peers' names and by their numbers.

mod elf;
mod fald_law;
mod gaussians;
mod images;
mod lenet;
mod quantise;
mod resnet;
mod softmax;
mod toy;

use clap::Subcommand;

/// A workload and its variant.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// W1: QLSD*, qsgd(16), a toy Gaussian, 20 clients, d = 50. An iteration is one server step of
    /// every chain.
    #[command(name = "qlsd_toy", alias = "W1")]
    Toy(toy::Toy),
    /// W2: FALD and VR-FALD*, 100 Gaussian clients, d = 20. An iteration is one local step of all
    /// clients of every chain.
    #[command(name = "fald_gauss", alias = "W2")]
    Gaussians(gaussians::Gaussians),
    /// W3: FA-LD, softmax regression of 60000 images, 10 clients, d = 7850. An iteration is one
    /// round of ten local steps.
    #[command(name = "softmax_mnist", alias = "W3")]
    FaLd(softmax::FaLd),
    /// W4: QLSD++, qsgd(256), softmax regression, 50 clients of 200 images, d = 7850. An iteration
    /// is one server step.
    #[command(name = "qlsd_logreg", alias = "W4")]
    QlsdPlusPlus(softmax::QlsdPlusPlus),
    /// W5: VR-FALD* on LeNet5, 20 clients, batch 8, d = 61706. An iteration is one local step of
    /// all clients.
    #[command(name = "lenet_vrfald", alias = "W5")]
    LeNet(lenet::LeNet),
    /// FALD on ResNet-20 (FRN, swish), 20 clients, batch 25. An iteration is one local step of all
    /// clients.
    #[command(name = "resnet_fald")]
    ResNet(resnet::ResNet),
    /// W6: B-ELF, top-1 both ways, logistic regression, 32560 rows of 123 columns, 20 clients. An
    /// iteration is one server step.
    #[command(name = "elf_logreg", alias = "W6")]
    Elf(elf::Elf),
    /// W7: a vector of a million numbers, quantised and encoded. An iteration is one vector.
    #[command(name = "quantise_encode", alias = "W7")]
    Quantise(quantise::Quantise),
    /// Many clients of which few take part: rounds a second, and bytes a client.
    Scale(crate::scale::Scale),
    /// How the cost of an iteration grows with clients, parameters, rows and chains: a table.
    Growth(crate::growth::Growth),
}

impl Workload {
    /// Run it; what it prints.
    pub fn run(&self) -> Result<String, String> {
        match self {
            Workload::Toy(it) => it.run(),
            Workload::Gaussians(it) => it.run(),
            Workload::FaLd(it) => it.run(),
            Workload::QlsdPlusPlus(it) => it.run(),
            Workload::LeNet(it) => it.run(),
            Workload::ResNet(it) => it.run(),
            Workload::Elf(it) => it.run(),
            Workload::Quantise(it) => it.run(),
            Workload::Scale(it) => it.run(),
            Workload::Growth(it) => it.run(),
        }
    }
}

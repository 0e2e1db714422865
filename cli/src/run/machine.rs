//! QEMU's arguments for a machine.

use crate::spec::MIB;

/// Distance of a node to itself and to any other, as firmware gives them.
const NEAR: u32 = 10;
const FAR: u32 = 20;

/// The machine to emulate.
#[derive(Debug, Clone)]
pub(super) struct Machine<'a> {
    pub(super) cpus: u32,
    /// One of QEMU's machines; `None` for its default.
    pub(super) machine: Option<&'a str>,
    /// One of QEMU's models, with or without changes to its features.
    pub(super) cpu_model: &'a str,
    pub(super) nodes: u32,
    pub(super) mem_bytes: u64,
    /// File names relative to QEMU's directory; QEMU splits them at commas and spaces, so they are
    /// ours and plain.
    pub(super) loader: &'a str,
    pub(super) image: &'a str,
    pub(super) command_line: &'a str,
}

impl Machine<'_> {
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-accel",
            "tcg,thread=multi",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=0x04",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        if let Some(machine) = self.machine {
            option("-machine", machine.to_owned());
        }
        option("-cpu", self.cpu_model.to_owned());
        option("-smp", self.cpus.to_string());
        option("-m", format!("{}M", self.mem_bytes / MIB));
        // One node is what a machine has without saying so, with no tables about it.
        if self.nodes > 1 {
            self.node_options(&mut option);
        }
        option("-kernel", self.loader.to_owned());
        option("-initrd", self.image.to_owned());
        option("-append", self.command_line.to_owned());
        args
    }

    fn node_options(&self, option: &mut impl FnMut(&str, String)) {
        for node in 0..self.nodes {
            let mem = self.node_mebibytes(node);
            option(
                "-object",
                format!("memory-backend-ram,id=mem{node},size={mem}M"),
            );
            let mut value = format!("node,nodeid={node},memdev=mem{node}");
            let (first, end) = self.node_cpus(node);
            match end - first {
                0 => {}
                1 => value.push_str(&format!(",cpus={first}")),
                _ => value.push_str(&format!(",cpus={first}-{}", end - 1)),
            }
            option("-numa", value);
        }
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                let distance = if from == to { NEAR } else { FAR };
                option("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }

    /// The CPUs of a node: even shares in order; a node beyond the CPUs has only memory.
    fn node_cpus(&self, node: u32) -> (u32, u32) {
        let bound = |n: u32| (u64::from(self.cpus) * u64::from(n) / u64::from(self.nodes)) as u32;
        if self.nodes > self.cpus {
            let first = node.min(self.cpus);
            return (first, (node + 1).min(self.cpus));
        }
        (bound(node), bound(node + 1))
    }

    /// Even shares in whole mebibytes that add up; the last node takes what is left over.
    fn node_mebibytes(&self, node: u32) -> u64 {
        let total = self.mem_bytes / MIB;
        let share = total / u64::from(self.nodes);
        if node + 1 == self.nodes {
            total - share * u64::from(self.nodes - 1)
        } else {
            share
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: u32, nodes: u32, mebibytes: u64) -> Machine<'static> {
        Machine {
            cpus,
            machine: Some("q35"),
            cpu_model: "EPYC,-xsave",
            nodes,
            mem_bytes: mebibytes * MIB,
            loader: "loader",
            image: "image",
            command_line: "thp=never -- a,b 'c d'",
        }
    }

    fn values(machine: &Machine<'_>, option: &str) -> Vec<String> {
        let args = machine.arguments();
        args.windows(2)
            .filter(|pair| pair[0] == option)
            .map(|pair| pair[1].clone())
            .collect()
    }

    #[test]
    fn one_node_needs_no_tables() {
        let machine = machine(4, 1, 512);
        assert_eq!(values(&machine, "-m"), ["512M"]);
        assert_eq!(values(&machine, "-smp"), ["4"]);
        assert_eq!(values(&machine, "-cpu"), ["EPYC,-xsave"]);
        assert_eq!(values(&machine, "-machine"), ["q35"]);
        assert!(values(&machine, "-numa").is_empty());
        assert_eq!(values(&machine, "-append"), ["thp=never -- a,b 'c d'"]);
    }

    #[test]
    fn nodes_share_cpus_and_memory() {
        let machine = machine(4, 2, 1025);
        assert_eq!(
            values(&machine, "-object"),
            [
                "memory-backend-ram,id=mem0,size=512M",
                "memory-backend-ram,id=mem1,size=513M"
            ]
        );
        assert_eq!(
            values(&machine, "-numa"),
            [
                "node,nodeid=0,memdev=mem0,cpus=0-1",
                "node,nodeid=1,memdev=mem1,cpus=2-3",
                "dist,src=0,dst=0,val=10",
                "dist,src=0,dst=1,val=20",
                "dist,src=1,dst=0,val=20",
                "dist,src=1,dst=1,val=10",
            ]
        );
    }

    #[test]
    fn every_cpu_and_every_mebibyte_has_one_node() {
        for cpus in 1..=9 {
            for nodes in 2..=8 {
                let machine = machine(cpus, nodes, 1003);
                let mut next = 0;
                for node in 0..nodes {
                    let (first, end) = machine.node_cpus(node);
                    assert_eq!(first, next, "{cpus} CPUs, {nodes} nodes");
                    next = end;
                }
                assert_eq!(next, cpus);
                let total: u64 = (0..nodes).map(|n| machine.node_mebibytes(n)).sum();
                assert_eq!(total, 1003);
            }
        }
    }

    #[test]
    fn a_node_beyond_the_cpus_has_only_memory() {
        let numa = values(&machine(1, 2, 64), "-numa");
        assert_eq!(numa[0], "node,nodeid=0,memdev=mem0,cpus=0");
        assert_eq!(numa[1], "node,nodeid=1,memdev=mem1");
    }
}

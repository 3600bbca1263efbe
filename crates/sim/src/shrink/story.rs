//! Of everything that happened, the last lines that matter to a person who asks why: what broke; faults, deaths, starts, leaders and cuts, of all nodes; and
//! the messages and requests of the partition and the nodes that the failure names. Heartbeats, acknowledgements and what readers come to see are left
//! out, and long lines are cut.

/// Characters of a line.
const WIDTH: usize = 200;

/// The last `lines` lines of a trace that matter to a failure described by `what`.
pub(super) fn matters(trace: &str, what: &str, lines: usize) -> String {
    let nodes = [numbers_after(what, "node "), numbers_after(what, "NodeId(")].concat();
    let partitions = [numbers_after(what, "partition "), numbers_after(what, "PartitionId(")].concat();
    let partition = partitions.first().copied();
    let kept: Vec<&str> = trace.lines().filter(|line| matters_here(line, &nodes, partition)).collect();
    let left_out = kept.len().saturating_sub(lines);
    let mut story = String::new();
    if left_out > 0 {
        story.push_str(&format!("... {left_out} earlier lines that may matter; --trace prints all\n"));
    }
    for line in &kept[left_out..] {
        story.extend(line.chars().take(WIDTH));
        story.push_str(if line.chars().count() > WIDTH { " ...\n" } else { "\n" });
    }
    story
}

fn matters_here(line: &str, nodes: &[u32], partition: Option<u32>) -> bool {
    const ALWAYS: [&str; 7] = ["BROKEN", "FAULT", ": died", ": start ", "halted", "Leader {", "healed"];
    const NEVER: [&str; 6] = ["Heartbeat", ", 0 bytes,", " Ack {", " Confirm", "WhoLeads", "machine Publish"];
    // Of the description of a message only its beginning is looked at: what it carries may say anything.
    let head = line.get(..line.len().min(60)).unwrap_or(line);
    if ALWAYS.iter().any(|word| head.contains(word)) {
        return true;
    }
    if NEVER.iter().any(|word| line.contains(word)) {
        return false;
    }
    let Some((from, to)) = endpoints(line) else {
        let named = numbers_after(head, "node ");
        return named.iter().any(|node| nodes.contains(node));
    };
    let of_partition = partition.is_none_or(|partition| line.contains(&format!(": p{partition} ")));
    of_partition && (nodes.is_empty() || nodes.contains(&from) || nodes.contains(&to))
}

/// `1 -> 2:` in a line.
fn endpoints(line: &str) -> Option<(u32, u32)> {
    let (before, after) = line.split_once(" -> ")?;
    let from = before.rsplit(' ').next()?.parse().ok()?;
    let to = after.split(':').next()?.parse().ok()?;
    Some((from, to))
}

/// The numbers that follow a word.
fn numbers_after(text: &str, word: &str) -> Vec<u32> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.match_indices(word).filter_map(|(at, _)| digits(&text[at + word.len()..]).parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
     0.000 ms  quorum3 with faults [Kill]
     1.000 ms  1 -> 2: p1 e3 Batch stream 5 base 7, 90 bytes, HW 7
     1.100 ms  1 -> 2: p1 e3 Batch stream 5 base 8, 0 bytes, HW 7
     1.200 ms  2 -> 3: p1 e3 Open { stream: 5 }
     1.300 ms  1 -> 2: p0 e3 Batch stream 5 base 7, 90 bytes, HW 7
     1.400 ms  node 3: machine applies [1, 2)
     1.500 ms  FAULT 2: kill at node 3
     1.600 ms  node 1: machine applies [1, 2)
     1.700 ms  BROKEN some-law: node 1 of partition 1
";

    #[test]
    fn what_concerns_others_and_heartbeats_are_left_out_and_faults_are_not() {
        let story = matters(TRACE, "node 1 of partition 1", 10);
        let times: Vec<&str> = story.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(times, vec!["1.000", "1.500", "1.600", "1.700"]);
    }

    #[test]
    fn nodes_and_partitions_are_known_however_they_are_written() {
        let same = matters(TRACE, "Place { partition: PartitionId(1), node: NodeId(1) } is wrong", 10);
        assert_eq!(same, matters(TRACE, "node 1 of partition 1", 10));
        let long = matters(&format!("1.0 ms  FAULT 1: {}", "x".repeat(500)), "so", 10);
        assert!(long.len() < 220 && long.ends_with(" ...\n"), "{long}");
    }

    #[test]
    fn only_the_last_lines_are_told() {
        let story = matters(TRACE, "node 1 of partition 1", 2);
        assert!(story.starts_with("... 2 earlier lines"), "{story}");
        assert!(story.ends_with("BROKEN some-law: node 1 of partition 1\n"));
        assert_eq!(story.lines().count(), 3);
    }
}

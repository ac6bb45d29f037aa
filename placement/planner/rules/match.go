package rules

import (
	"fmt"
	"strings"
)

// Mask is the set of rules of a keyspace that a node matches: bit i stands for rule i.
type Mask uint16

// Mask returns which of the rules a node matches.
func (r Rules) Mask(n Labels) Mask {
	var m Mask
	for i, rule := range r {
		if rule.On.Match(n) {
			m |= 1 << i
		}
	}
	return m
}

// NoRule is the index of no rule.
const NoRule = int8(-1)

// Matching assigns the replicas of a partition to rules.
type Matching struct {
	// Violations counts the replicas that a rule without a number forbids, and the replicas that
	// rules with a number lack.
	Violations int
	// Rule holds, for each replica, the rule with a number that it counts for, or NoRule.
	Rule [MaxReplicas + 1]int8
}

// Allows says whether the rules without a number let a replica be on a node.
func (r Rules) Allows(mask Mask) bool {
	for i, rule := range r {
		if rule.Count == 0 && mask&(1<<i) == 0 {
			return false
		}
	}
	return true
}

// AllowedText continues a sentence about nodes: " that the placement ... allows". It is empty if
// the rules allow every node.
func (r Rules) AllowedText() string {
	var all Rules
	for _, rule := range r {
		if rule.Count == 0 {
			all = append(all, rule)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(" that the placement %q allows", all)
}

// Shortage finds rules that nodes with such masks cannot satisfy together. It returns the names of
// the rules, how many nodes they want, and how many nodes match any of them; wanted is 0 if the
// nodes can satisfy all rules. By Hall's theorem they can if there are nodes enough for every set
// of rules.
func (r Rules) Shortage(masks []Mask) (names string, wanted, has int) {
	for set := Mask(1); set < 1<<len(r); set++ {
		var of []string
		wanted, has = 0, 0
		for i, rule := range r {
			if set&(1<<i) != 0 && rule.Count > 0 {
				wanted += rule.Count
				of = append(of, rule.String())
			}
		}
		for _, mask := range masks {
			if mask&set != 0 {
				has++
			}
		}
		if has < wanted {
			return strings.Join(of, " or "), wanted, has
		}
	}
	return "", 0, 0
}

// Match finds the assignment of replicas to rules with the fewest violations. Replicas are given by
// the masks of their nodes. A replica counts for one rule with a number at most, so the assignment
// is a maximum matching in a bipartite graph. Match finds it by augmenting paths: both sides are
// tiny.
func (r Rules) Match(masks []Mask) Matching {
	m := Matching{}
	var allowed [MaxReplicas + 1]bool
	for i, mask := range masks {
		m.Rule[i], allowed[i] = NoRule, r.Allows(mask)
		if !allowed[i] {
			m.Violations++
		}
	}
	for j, rule := range r {
		for range rule.Count {
			var seen [MaxReplicas + 1]bool
			if !m.augment(masks, &allowed, &seen, int8(j)) {
				m.Violations++
			}
		}
	}
	return m
}

// augment finds one more replica for a rule. It moves replicas to other rules if that is needed.
// seen has the replicas that were tried.
func (m *Matching) augment(
	masks []Mask, allowed, seen *[MaxReplicas + 1]bool, rule int8,
) bool {
	for i, mask := range masks {
		if seen[i] || !allowed[i] || mask&(1<<rule) == 0 {
			continue
		}
		seen[i] = true
		if m.Rule[i] == NoRule || m.augment(masks, allowed, seen, m.Rule[i]) {
			m.Rule[i] = rule
			return true
		}
	}
	return false
}

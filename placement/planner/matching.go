package planner

import "strings"

// A ruleMask has a bit for each rule of a keyspace that a node matches.
type ruleMask uint16

func (r Rules) mask(n Labels) ruleMask {
	var m ruleMask
	for i, rule := range r {
		if rule.On.Match(n) {
			m |= 1 << i
		}
	}
	return m
}

// matching says which rule each replica of a partition satisfies.
type matching struct {
	// violations counts replicas that a rule for all forbids, and replicas that rules with a
	// number are short of.
	violations int
	// rule of each replica: an index into the rules, or noRule.
	rule [maxReplicas + 1]int8
	// short is how many replicas each rule with a number is short of.
	short [maxRules]int8
}

// noRule is the index of no rule.
const noRule = int8(-1)

// shortage finds rules that cannot be satisfied together on nodes with such masks: it names them,
// and tells how many nodes they want and how many match any of them. Wanted is 0 if there are none.
// By Hall's theorem the rules can be satisfied if for every set of them there are nodes enough.
func (r Rules) shortage(masks []ruleMask) (names string, wanted, has int) {
	for set := ruleMask(1); set < 1<<len(r); set++ {
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

// match finds the best assignment of replicas, given by their masks, to rules. Replicas count for
// one rule with a number at most, so this is a maximum matching in a bipartite graph, by augmenting
// paths; both sides are tiny.
func (r Rules) match(masks []ruleMask) matching {
	m := matching{}
	var allowed [maxReplicas + 1]bool
	for i, mask := range masks {
		m.rule[i], allowed[i] = noRule, true
		for j, rule := range r {
			if rule.Count == 0 && mask&(1<<j) == 0 {
				allowed[i] = false
			}
		}
		if !allowed[i] {
			m.violations++
		}
	}
	for j, rule := range r {
		for range rule.Count {
			var seen [maxReplicas + 1]bool
			if !m.augment(masks, &allowed, &seen, int8(j)) {
				m.short[j]++
				m.violations++
			}
		}
	}
	return m
}

// augment finds a replica for one more place of the rule, moving others to other rules if need be.
func (m *matching) augment(
	masks []ruleMask, allowed, seen *[maxReplicas + 1]bool, rule int8,
) bool {
	for i, mask := range masks {
		if seen[i] || !allowed[i] || mask&(1<<rule) == 0 {
			continue
		}
		seen[i] = true
		if m.rule[i] == noRule || m.augment(masks, allowed, seen, m.rule[i]) {
			m.rule[i] = rule
			return true
		}
	}
	return false
}

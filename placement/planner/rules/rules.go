package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxRules is how many rules a keyspace can have, maxSelectors how many selectors a rule.
	maxRules, maxSelectors = 8, 8
	// MaxReplicas bounds the replicas of one partition, learners and one more to come included.
	MaxReplicas = 16
	// MaxFactor is the largest replication factor.
	MaxFactor = 9
)

// Labels are the properties of a node that rules can name.
type Labels struct {
	Region, Zone string
	Tags         []string
}

// Selector matches nodes by a region, a zone or a tag.
type Selector struct {
	// Key is "region", "zone", the part of a tag before "=", or a whole tag without "=".
	Key string
	// Value is the value that the key has to have. It is empty if the key is a whole tag.
	Value string
	// Not matches the nodes that the selector would not match without it.
	Not bool
}

func (s Selector) String() string {
	switch {
	case s.Not && s.Value == "":
		return "!" + s.Key
	case s.Not:
		return s.Key + "!=" + s.Value
	case s.Value == "":
		return s.Key
	}
	return s.Key + "=" + s.Value
}

func (s Selector) match(n Labels) bool {
	var matches bool
	switch s.Key {
	case "region":
		matches = n.Region == s.Value
	case "zone":
		matches = n.Zone == s.Value
	default:
		matches = slices.Contains(n.Tags, Selector{Key: s.Key, Value: s.Value}.String())
	}
	return matches != s.Not
}

// Selectors match a node if each of them does.
type Selectors []Selector

func (s Selectors) String() string {
	parts := make([]string, len(s))
	for i, one := range s {
		parts[i] = one.String()
	}
	return strings.Join(parts, "+")
}

// MarshalText is for JSON.
func (s Selectors) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Match says whether each selector matches the node.
func (s Selectors) Match(n Labels) bool {
	return !slices.ContainsFunc(s, func(one Selector) bool { return !one.match(n) })
}

// Rule asks for replicas on the nodes that its selectors match.
type Rule struct {
	On Selectors
	// Count is how many replicas of a partition have to be there at least; 0: all.
	Count int
}

func (r Rule) String() string {
	if r.Count == 0 {
		return r.On.String()
	}
	return fmt.Sprintf("%s:%d", r.On, r.Count)
}

// Rules have to be satisfied together. A replica counts for one rule with a number at most, and for
// every rule without a number.
type Rules []Rule

func (r Rules) String() string {
	parts := make([]string, len(r))
	for i, one := range r {
		parts[i] = one.String()
	}
	return strings.Join(parts, ",")
}

// MarshalText is for JSON.
func (r Rules) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Validate fails if no partition with that many replicas can satisfy the rules.
func (r Rules) Validate(replicas int) error {
	sum := 0
	for _, rule := range r {
		sum += rule.Count
	}
	if sum > replicas {
		return fmt.Errorf("the rules %q want %d replicas in all, the keyspace has %d", r, sum,
			replicas)
	}
	return nil
}

// Parse reads rules as they are given on a command line:
//
//	region=eu:2,region=us:1     two replicas in eu and one in us; any others are anywhere
//	region=eu+disk=ssd:1        one of them in eu on a node with the tag disk=ssd
//	zone!=z3,!slow              none in z3, none on a node with the tag slow
//
// A rule without a number is for all replicas. The empty string has no rules. The error names the
// part that is wrong.
func Parse(text string) (Rules, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var rules Rules
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		rule := Rule{}
		on, count, counted := strings.Cut(part, ":")
		if counted {
			n, err := strconv.Atoi(strings.TrimSpace(count))
			if err != nil || n < 1 || n > MaxFactor {
				return nil, fmt.Errorf("placement rule %q: the number of replicas is %q; want 1 to %d",
					part, count, MaxFactor)
			}
			rule.Count = n
		}
		var err error
		if rule.On, err = ParseSelectors(on); err != nil {
			return nil, fmt.Errorf("placement rule %q: %w", part, err)
		}
		for _, other := range rules {
			if other.On.String() == rule.On.String() {
				return nil, fmt.Errorf("placement rule %q: %q is there twice", part, rule.On)
			}
		}
		rules = append(rules, rule)
	}
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d placement rules; at most %d", len(rules), maxRules)
	}
	return rules, nil
}

// ParseSelectors reads selectors that are joined with "+", as in "region=eu+disk=ssd".
func ParseSelectors(text string) (Selectors, error) {
	var out Selectors
	for part := range strings.SplitSeq(text, "+") {
		s, err := parseSelector(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) > maxSelectors {
		return nil, fmt.Errorf("%d conditions joined with \"+\"; at most %d", len(out), maxSelectors)
	}
	return out, nil
}

func parseSelector(text string) (Selector, error) {
	if text == "" {
		return Selector{}, fmt.Errorf("a condition is empty; want key=value, key!=value, a tag or !tag")
	}
	s := Selector{}
	var valued bool
	if s.Key, s.Value, valued = strings.Cut(text, "!="); valued {
		s.Not = true
	} else if s.Key, s.Value, valued = strings.Cut(text, "="); !valued {
		s.Key, s.Not = strings.CutPrefix(text, "!")
	}
	if s.Key == "" || strings.ContainsAny(s.Key+s.Value, "!=:,+ \t") {
		return Selector{}, fmt.Errorf("cannot read %q; want key=value, key!=value, a tag or !tag", text)
	}
	if valued && s.Value == "" {
		return Selector{}, fmt.Errorf("%q names no value", text)
	}
	if !valued && (s.Key == "region" || s.Key == "zone") {
		return Selector{}, fmt.Errorf("%q names no %s; want %s=NAME", text, s.Key, s.Key)
	}
	return s, nil
}

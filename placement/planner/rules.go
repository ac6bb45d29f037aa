package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxRules and maxSelectors bound what a keyspace can ask for.
	maxRules, maxSelectors = 8, 8
	// maxReplicas is how many replicas the planner handles of one partition, learners included.
	maxReplicas = 16
	// maxFactor is the largest replication factor.
	maxFactor = 9
)

// Keyspace is what a keyspace wants of the placement of its partitions.
type Keyspace struct {
	ID   keys.KeyspaceID
	Name string
	// Replicas is the replication factor, 1 to 9.
	Replicas int
	// Rules say where replicas have to be; none: anywhere.
	Rules Rules
	// Leaders says where leaders should be, as long as a voter that can lead is there; none:
	// anywhere.
	Leaders Selectors
	// SplitSize is from which size on a partition splits, in bytes, and MergeSize below which two
	// neighbours together are merged. 0: 256 MiB and 64 MiB.
	SplitSize, MergeSize int64
	// NoAuto: partitions split and merge only when that is asked for.
	NoAuto bool
}

// DefaultSplitSize and DefaultMergeSize are the sizes for keyspaces that do not say.
const (
	DefaultSplitSize int64 = 256 << 20
	DefaultMergeSize int64 = 64 << 20
)

func (k *Keyspace) ensureDefaults() {
	orElse(&k.SplitSize, DefaultSplitSize)
	orElse(&k.MergeSize, DefaultMergeSize)
}

func (k *Keyspace) validate() error {
	if k.ID == 0 || k.Replicas < 1 || k.Replicas > maxFactor {
		return fmt.Errorf("keyspace %s (%q): %d replicas; want 1 to %d and an id", k.ID, k.Name,
			k.Replicas, maxFactor)
	}
	if k.SplitSize < 0 || k.MergeSize < 0 {
		return fmt.Errorf("keyspace %q: it splits at %d bytes and merges below %d; want "+
			"neither below 0",
			k.Name, k.SplitSize, k.MergeSize)
	}
	if err := k.Rules.Validate(k.Replicas); err != nil {
		return fmt.Errorf("keyspace %q: %w", k.Name, err)
	}
	return nil
}

// Labels are what rules can ask of a node.
type Labels struct {
	Region, Zone string
	Tags         []string
}

// Selector matches nodes by a region, a zone or a tag.
type Selector struct {
	// Key is "region", "zone" or the part of a tag before "="; a tag without "=" is a key.
	Key string
	// Value is what the key has to be. Empty: the tag is the key alone.
	Value string
	// Not: it has to be anything else.
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
	var is bool
	switch s.Key {
	case "region":
		is = n.Region == s.Value
	case "zone":
		is = n.Zone == s.Value
	default:
		is = slices.Contains(n.Tags, Selector{Key: s.Key, Value: s.Value}.String())
	}
	return is != s.Not
}

// Selectors match a node that all of them match.
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

// Match says whether all of them match the node.
func (s Selectors) Match(n Labels) bool {
	return !slices.ContainsFunc(s, func(one Selector) bool { return !one.match(n) })
}

// Rule asks for a number of replicas on the nodes that its selectors match.
type Rule struct {
	On Selectors
	// Count is how many replicas at least; 0: all.
	Count int
}

func (r Rule) String() string {
	if r.Count == 0 {
		return r.On.String()
	}
	return fmt.Sprintf("%s:%d", r.On, r.Count)
}

// Rules are satisfied together: a replica counts for one rule with a number only, and for every
// rule without.
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

// Validate says why no partition with that many replicas can satisfy the rules.
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

// ParseRules reads rules as they are given on a command line:
//
//	region=eu:2,region=us:1     two replicas in eu and one in us; any others are anywhere
//	region=eu+disk=ssd:1        one of them in eu on a node with the tag disk=ssd
//	zone!=z3,!slow              none in z3, noReplica on a node with the tag slow
//
// A rule without a number is for all replicas. The empty string has no rules. The error says which
// part is wrong.
func ParseRules(text string) (Rules, error) {
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
			if err != nil || n < 1 || n > maxFactor {
				return nil, fmt.Errorf("placement rule %q: the number of replicas is %q; want 1 to %d",
					part, count, maxFactor)
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

// ParseSelectors reads selectors, joined with "+", as in "region=eu+disk=ssd".
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

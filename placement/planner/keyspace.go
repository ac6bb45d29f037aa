package planner

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Keyspace is what a keyspace wants of the placement of its partitions.
type Keyspace struct {
	ID   keys.KeyspaceID
	Name string
	// Replicas is the replication factor, 1 to 9.
	Replicas int
	// Rules say where replicas have to be. Empty: anywhere.
	Rules rules.Rules
	// Leaders says where leaders should be, as long as a voter that can lead is there. Empty:
	// anywhere.
	Leaders rules.Selectors
	// A partition of SplitSize bytes or more is split. Two neighbours that have less than MergeSize
	// bytes together are merged. 0: 256 MiB and 64 MiB.
	SplitSize, MergeSize int64
	// NoAuto: partitions are split and merged only on request.
	NoAuto bool
}

// The sizes of keyspaces that do not set them, in bytes.
const (
	DefaultSplitSize int64 = 256 << 20
	DefaultMergeSize int64 = 64 << 20
)

// EnsureDefaults sets the sizes that are zero to their defaults.
func (k *Keyspace) EnsureDefaults() {
	orElse(&k.SplitSize, DefaultSplitSize)
	orElse(&k.MergeSize, DefaultMergeSize)
}

// Validate fails if the keyspace has no id, a value out of range, or rules that no partition can
// satisfy.
func (k *Keyspace) Validate() error {
	if k.ID == 0 || k.Replicas < 1 || k.Replicas > rules.MaxFactor {
		return fmt.Errorf("keyspace %s (%q): %d replicas; want 1 to %d and an id", k.ID, k.Name,
			k.Replicas, rules.MaxFactor)
	}
	if k.SplitSize < 0 || k.MergeSize < 0 {
		return fmt.Errorf("keyspace %q: it splits at %d bytes and merges below %d; want "+
			"neither below 0", k.Name, k.SplitSize, k.MergeSize)
	}
	if err := k.Rules.Validate(k.Replicas); err != nil {
		return fmt.Errorf("keyspace %q: %w", k.Name, err)
	}
	return nil
}

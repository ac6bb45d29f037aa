package planner

import (
	"fmt"
	"strconv"

	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Key is a user key. It is written as people read keys.
type Key []byte

func (k Key) String() string { return keys.Pretty(k) }

// MarshalText writes the key in ASCII, for JSON.
func (k Key) MarshalText() ([]byte, error) {
	quoted := strconv.QuoteToASCII(string(k))
	return []byte(quoted[1 : len(quoted)-1]), nil
}

// Growth is what the leader of a partition reports of its load and of where it could be split.
type Growth struct {
	// Sustained is the least load of the last three windows of measurement, Peak the highest load of
	// the last ten minutes. Both are loads of the leader.
	Sustained, Peak Cores
	// ByLoad is the key that divides the load best, BySize the key that divides the bytes best; nil:
	// no key is known.
	ByLoad, BySize *SplitPoint
	// OneKey is set if one key has so many of the bytes that no other key divides them.
	OneKey bool
	// HotKey is the key with the largest part of the load, Hot that part in thousandths; 0: not
	// known.
	HotKey Key
	Hot    int
	// Ascending is the part of the writes, in thousandths, that is appended: each write is to a key
	// above all keys of the partition.
	Ascending int
}

// SplitPoint is a key at which a partition could be split. Left, Right and Across are thousandths
// of the load or of the bytes; Across is the part that touches both sides.
type SplitPoint struct {
	Key                 Key
	Left, Right, Across int
}

// Larger is the part, in thousandths, that the larger side would have.
func (p *SplitPoint) Larger() int { return max(p.Left, p.Right) + p.Across }

func (p *SplitPoint) String() string {
	text := fmt.Sprintf("%s left and %s right of %s", words.Permille(p.Left),
		words.Permille(p.Right), p.Key)
	if p.Across > 0 {
		text += fmt.Sprintf(", %s on both sides", words.Permille(p.Across))
	}
	return text
}

func (g *Growth) validate() error {
	if g.Sustained < 0 || g.Peak < 0 || g.Hot < 0 || g.Hot > 1000 || g.Ascending < 0 ||
		g.Ascending > 1000 {
		return fmt.Errorf("load %s and %s, hot key %d, ascending %d: a value is out of range",
			g.Sustained, g.Peak, g.Hot, g.Ascending)
	}
	for _, p := range []*SplitPoint{g.ByLoad, g.BySize} {
		if p != nil && (len(p.Key) == 0 || p.Left < 0 || p.Right < 0 || p.Across < 0 ||
			p.Left+p.Right+p.Across > 1000) {
			return fmt.Errorf("split key %s: %d, %d and %d thousandths: a value is out of range", p.Key,
				p.Left, p.Right, p.Across)
		}
	}
	return nil
}

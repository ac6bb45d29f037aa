package splitrecovery

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// EachEntry calls do for the entries of a log above after, up to last.
func EachEntry(g *raftlog.Group, after, last uint64, do func(group.Entry) error) error {
	for next := after + 1; next <= last; {
		entries, err := g.Entries(next, last+1, 1<<20)
		if err != nil {
			return fmt.Errorf("reading entry %d of its log: %w", next, err)
		}
		if len(entries) == 0 {
			return fmt.Errorf("entry %d of its log: %w", next, raftlog.ErrCorrupt)
		}
		for _, e := range entries {
			entry := group.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()}
			if e.GetType() != raftpb.EntryNormal {
				if entry.Data, err = group.DecodeChange(e); err != nil {
					return err
				}
				entry.Change = true
			}
			if err := do(entry); err != nil {
				return err
			}
		}
		next += uint64(len(entries))
	}
	return nil
}

// pieceBytes is the approximate size of what is applied at once.
const pieceBytes = 1 << 20

// EachPiece is EachEntry for pieces of the log that can be applied at once.
func EachPiece(g *raftlog.Group, after, last uint64, do func([]group.Entry) error) error {
	var piece []group.Entry
	size := 0
	flush := func() error {
		if len(piece) == 0 {
			return nil
		}
		err := do(piece)
		piece, size = nil, 0
		return err
	}
	if err := EachEntry(g, after, last, func(e group.Entry) error {
		piece, size = append(piece, e), size+len(e.Data)
		if e.Change || size > pieceBytes {
			return flush()
		}
		return nil
	}); err != nil {
		return err
	}
	return flush()
}

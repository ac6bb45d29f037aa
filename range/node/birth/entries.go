package birth

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// EachEntry calls a function for the entries of a log behind after, up to last.
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

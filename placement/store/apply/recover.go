package apply

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// recoveredRevisions is the least increase of the revision when the core continues from one member:
// the lost members may have had later revisions, and a watcher that has seen such a revision has to
// begin anew.
const recoveredRevisions = 1_000_000

// Recover implements Store.Recover. An application that has applied nothing ends at the first
// entry.
//
// The revision becomes the number of microseconds since 1970 if that is higher: no store makes a
// revision each microsecond, so the new revision is above all revisions that this member lacks.
// Only the one member that continues applies this, so its clock may decide.
func (a *Application) Recover(next *storepb.Members, ops []*storepb.Op, now time.Time) error {
	a.Meta.Revision += recoveredRevisions
	if micros := now.UnixMicro(); micros > 0 {
		a.Meta.Revision = max(a.Meta.Revision, uint64(micros))
	}
	result := &storepb.Result{}
	if err := a.txn(&storepb.Txn{Success: ops}, result); err != nil {
		return err
	}
	if err := command.ErrorOf(result); err != nil {
		return fmt.Errorf("changing records: %w", err)
	}
	if err := a.compact(&storepb.Compact{Revision: a.Meta.Revision}, result); err != nil {
		return err
	}
	if err := command.ErrorOf(result); err != nil {
		return fmt.Errorf("forgetting the history: %w", err)
	}
	a.Members, a.Index = next, max(a.Index, 1)
	return a.set(a.machine.layout.Members, next)
}

package apply

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// recoveredRevisions is the least amount by which the revision is raised when the core continues
// from one member: the lost members may have had later revisions, and a watcher that has seen one
// of these has to begin anew.
const recoveredRevisions = 1_000_000

// Recover applies what Store.Recover does. An application that has applied nothing ends at the
// first entry.
//
// The revision becomes the number of microseconds since 1970 if that is higher: no store makes a
// revision each microsecond, so the revision is above all that this member lacks. Only the one
// member that continues applies this, so its clock may decide.
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

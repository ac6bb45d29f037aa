package apply

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Entry applies the next entry of the log.
func (a *Application) Entry(e group.Entry) error {
	if e.Index != a.Index+1 {
		return fmt.Errorf("it follows entry %d", a.Index)
	}
	a.Index = e.Index
	if len(e.Data) == 0 {
		return nil
	}
	return command.Each(e.Data, func(data []byte) error {
		c, format, err := command.Decode(data)
		if err != nil {
			return err
		}
		a.format, a.change = format, e.Change
		return a.command(c)
	})
}

// command applies one command.
func (a *Application) command(c *storepb.Command) error {
	id := execute.ID{Origin: c.Origin, Request: c.Request}
	heard := a.machine.store.Awaits(id)
	a.unheard = !heard && c.Session == 0
	before := a.Meta.Revision
	result, err := a.once(c)
	if invariants.Enabled && err == nil && c.GetImport() == nil && !a.Replaced {
		invariants.Check(a.Meta.Revision == before || a.Meta.Revision == before+1,
			"the store: a command takes revision %d to %d", before, a.Meta.Revision)
		invariants.Check(a.Meta.Compacted <= a.Meta.Revision,
			"the store: revision %d is compacted, and the newest is %d", a.Meta.Compacted,
			a.Meta.Revision)
	}
	if _, is := c.Op.(*storepb.Command_ChangeMembers); a.change && !is {
		err = errors.Join(err, errors.New("it changes the configuration, and says no members"))
	}
	if err != nil {
		return err
	}
	a.machine.store.Evaluated(c, result)
	if heard {
		a.Answers = append(a.Answers, execute.Answer{ID: id, Result: result})
	}
	return nil
}

// execute evaluates a command. An error means that the database failed; the command's own errors
// are in the result.
func (a *Application) execute(c *storepb.Command) (*storepb.Result, error) {
	result := &storepb.Result{}
	if tables.Importing(a.Meta) && refusesDuringImport(c) {
		command.Refuse(result, storepb.Code_IMPORTING, "it has %d keys so far", a.Meta.Import.Versions)
		result.Revision = a.Meta.Revision
		return result, nil
	}
	if code := command.Alarmed(a.currentAlarms(), c); code != storepb.Code_OK {
		command.Refuse(result, code, "")
		result.Revision = a.Meta.Revision
		return result, nil
	}
	err := a.authorize(c, result)
	if err != nil || result.Code != storepb.Code_OK {
		result.Revision = a.Meta.Revision
		return result, err
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		err = a.txn(op.Txn, result)
	case *storepb.Command_Compact:
		err = a.compact(op.Compact, result)
	case *storepb.Command_LeaseGrant:
		err = a.grant(op.LeaseGrant, result)
	case *storepb.Command_LeaseRevoke:
		err = a.revoke(op.LeaseRevoke, result)
	case *storepb.Command_LeaseCheckpoint:
		err = a.checkpoint(op.LeaseCheckpoint)
	case *storepb.Command_SessionOpen:
		err = a.openSession(result)
	case *storepb.Command_SessionClose:
		err = a.closeSession(c.Session)
	case *storepb.Command_AuthChange:
		err = a.changeAuth(op.AuthChange, result)
	case *storepb.Command_ChangeMembers:
		err = a.changeMembers(op.ChangeMembers, result)
	case *storepb.Command_Import:
		err = a.importStep(op.Import, result)
	case *storepb.Command_AlarmChange:
		err = a.changeAlarm(op.AlarmChange, result)
	default:
		err = fmt.Errorf("command %T is not known to this version", op)
	}
	result.Revision = a.Meta.Revision
	return result, err
}

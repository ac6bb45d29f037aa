package apply

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// currentAuthority are the users and roles after the entries applied so far.
func (a *Application) currentAuthority() *authority.State {
	if a.Authority != nil {
		return a.Authority
	}
	return a.machine.store.Authority()
}

// authorize refuses a command that its client is not permitted now.
func (a *Application) authorize(c *storepb.Command, result *storepb.Result) error {
	if c.Auth == nil || !a.currentAuthority().Enabled() {
		return nil
	}
	return refuseAuth(result, a.currentAuthority().Command(c, a.attachedKeys))
}

// refuseAuth sets the refusal in a result. It returns an err that is not a refusal.
func refuseAuth(result *storepb.Result, err error) error {
	var refused *authority.Error
	if errors.As(err, &refused) {
		command.Refuse(result, refused.Code, "")
		return nil
	}
	return err
}

func (a *Application) attachedKeys(lease int64) (keys [][]byte, err error) {
	err = a.read(func(r *tables.Reader) error {
		keys, err = r.AttachedKeys(lease)
		return err
	})
	return keys, err
}

func (a *Application) changeAuth(c *storepb.AuthChange, result *storepb.Result) error {
	next, writes, err := a.currentAuthority().Change(c)
	if err != nil {
		return refuseAuth(result, err)
	}
	for _, w := range writes {
		key := a.machine.layout.AuthKey(w.Table, w.Name)
		if w.Record == nil {
			err = a.batch.Delete(key, nil)
		} else {
			err = a.set(key, w.Record)
		}
		if err != nil {
			return err
		}
	}
	if len(writes) > 0 {
		a.Authority = next
	}
	return nil
}

// changeMembers applies a ChangeMembers.
func (a *Application) changeMembers(c *storepb.ChangeMembers, result *storepb.Result) error {
	now := a.Members
	if now == nil {
		now = a.machine.store.Members()
	}
	if c.GetVersion() != now.GetVersion() || c.GetNext().GetVersion() <= c.GetVersion() {
		command.Refuse(result, storepb.Code_MEMBERS_CHANGED, "the members are at version %d",
			now.GetVersion())
		return nil
	}
	change, err := command.StepOfMembers(now, c.Next)
	if err == nil && change != a.change {
		err = fmt.Errorf("the entry is marked as a change of the configuration: %v, and it is one: %v",
			a.change, change)
	}
	if err != nil {
		command.Refuse(result, storepb.Code_INVALID, "%s", err.Error())
		return nil
	}
	a.Members = c.Next
	return a.set(a.machine.layout.Members, c.Next)
}

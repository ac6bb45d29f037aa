package command

import (
	"cmp"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarmed returns why a command is refused while some alarms are raised; OK if it is not refused.
func Alarmed(alarms []*storepb.Alarm, c *storepb.Command) storepb.Code {
	if len(alarms) == 0 {
		return storepb.Code_OK
	}
	var writes, puts bool
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		writes, puts = !ReadOnly(op.Txn), putsAny(op.Txn)
	case *storepb.Command_LeaseGrant:
		writes, puts = true, true
	case *storepb.Command_LeaseRevoke, *storepb.Command_Compact:
		writes = true
	case *storepb.Command_Import:
		writes = !op.Import.GetAbandon()
		puts = writes && len(op.Import.GetLeases())+len(op.Import.GetVersions()) > 0
	}
	code := storepb.Code_OK
	for _, alarm := range alarms {
		switch {
		case writes && alarm.Type == storepb.Alarm_CORRUPT:
			return storepb.Code_CORRUPT
		case puts && alarm.Type == storepb.Alarm_NO_SPACE:
			code = storepb.Code_NO_SPACE
		}
	}
	return code
}

// putsAny reports whether a transaction may put a key.
func putsAny(t *storepb.Txn) bool {
	return !EachOp(t, func(op *storepb.Op) bool {
		_, puts := op.GetOp().(*storepb.Op_Put)
		return !puts
	})
}

// AlarmOrder is the order of alarms, by member and type, in which they are kept and searched.
func AlarmOrder(a, b *storepb.Alarm) int {
	return cmp.Or(cmp.Compare(a.GetMember(), b.GetMember()), cmp.Compare(a.GetType(), b.GetType()))
}

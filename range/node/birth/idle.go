package birth

import (
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Idle is the group of a replica that only applies.
type Idle struct{}

var errIdle = errors.New("the replica has no group")

func (Idle) Propose(uint64, []byte) error                            { return errIdle }
func (Idle) ProposeChange(uint64, []byte, group.Configuration) error { return errIdle }
func (Idle) ReadIndex(done func(error))                              { done(errIdle) }
func (Idle) Lease() (uint64, bool)                                   { return 0, false }
func (Idle) LeaseLeft() time.Duration                                { return 0 }
func (Idle) Leader() (keys.ReplicaID, uint64)                        { return 0, 0 }
func (Idle) Wake()                                                   {}
func (Idle) TransferLeader(uint64, keys.ReplicaID)                   {}

package backups

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// schedule is the stored record of a schedule.
type schedule struct {
	*clusterpb.BackupSchedule
	revision uint64
}

func scheduleKey(name string) []byte { return []byte(meta.SchedulePrefix + name) }

// shown returns a copy of the record for answers.
func (s schedule) shown(logError string) *clusterpb.BackupSchedule {
	c := proto.CloneOf(s.BackupSchedule)
	c.Identity, c.LogError = "", logError
	return c
}

// full, incremental and log return the interval between two full backups, two backups, and two
// rounds of the log.
func (s schedule) full() time.Duration        { return millis(s.FullMillis) }
func (s schedule) incremental() time.Duration { return millis(s.IncrementalMillis) }
func (s schedule) log() time.Duration         { return millis(s.LogMillis) }

func millis(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }

// loadSchedule reads one schedule. Its BackupSchedule is nil if the schedule does not exist.
func loadSchedule(v *store.View, name string) (schedule, error) {
	s := new(clusterpb.BackupSchedule)
	revision, err := meta.Load(v, scheduleKey(name), s)
	if err != nil || revision == 0 {
		return schedule{}, err
	}
	return schedule{s, revision}, nil
}

package examine

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// DiskOf reports the disk of a part of a server: its databases, and the host that writes to them.
// The names of parts are those of package datadir.
func DiskOf(part string, fs vfs.FS, d *datadir.Databases, h *host.Host) *diagnosispb.Disk {
	slow, sync := h.DiskSlow()
	metrics := d.State.Metrics()
	r := &diagnosispb.Disk{
		Part: part, Directory: d.State.Dir(), Free: d.State.FreeBytes(),
		Reserve: d.State.MinFreeBytes(), Used: d.State.UsedBytes() + d.Log.UsedBytes(),
		Full: d.State.Full() || d.Log.Full(), Slow: slow, SyncMicros: uint64(sync.Microseconds()),
		WritingMicros:  uint64(max(0, h.Log().Writing().Microseconds())),
		CompactionDebt: metrics.Compact.EstimatedDebt,
		LevelZeroFiles: uint64(max(0, metrics.Levels[0].TablesCount)),
	}
	if usage, err := fs.GetDiskUsage(d.State.Dir()); err == nil {
		r.Size, r.Free = usage.TotalBytes, usage.AvailBytes
	}
	for _, err := range []error{d.State.Err(), d.Log.Err()} {
		if err != nil {
			r.Failure = err.Error()
		}
	}
	return r
}

// Delayed adds a host's measured wait to the data about the processor.
func Delayed(p *diagnosispb.Processor, h *host.Host) {
	wait := uint64(h.ProcessorWait() / time.Microsecond)
	p.WaitMicros = max(p.WaitMicros, wait)
}

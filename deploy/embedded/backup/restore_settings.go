package backup

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// placement returns the placement settings at the moment of the backup.
func (r *restore) placement() (*clusterpb.PlacementSettings, error) {
	set := new(clusterpb.PlacementSettings)
	if len(r.base().Settings) == 0 {
		return nil, fmt.Errorf("%w: the backup %s has no settings of placement", errRestore,
			r.backup.Restore.Backup)
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.base().Settings,
		set); err != nil {
		return nil, fmt.Errorf("%w: the settings of placement: %w", errRestore, err)
	}
	return set, nil
}

// checkSettings returns an error if settings should be restored and the backup has none.
func (r *restore) checkSettings() error {
	if !r.backup.Restore.Settings {
		return nil
	}
	_, err := r.placement()
	return err
}

// applySettings restores the placement settings, if requested. It may be repeated.
func (r *restore) applySettings(ctx context.Context) error {
	if !r.backup.Restore.Settings {
		return nil
	}
	set, err := r.placement()
	if err != nil {
		return err
	}
	r.tell("set what placement may do")
	_, err = r.config.Core().SetPlacement(ctx, &clusterpb.SetPlacementRequest{Change: set})
	return err
}

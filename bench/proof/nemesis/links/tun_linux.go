package links

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tun is a TUN device: packets that the kernel routes to it are read from it, and packets written
// to it have arrived. It vanishes when it is closed. A device that is moved into a namespace stays
// tied to the file here.
type tun struct{ *os.File }

func openTun(name string) (*tun, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("TUN device %s: %w", name, err)
	}
	return &tun{os.NewFile(uintptr(fd), name)}, nil
}

// write has a packet arrive; one that the kernel does not take is lost, which is no error unless
// the device is closed.
func (t *tun) write(packet []byte) error {
	if _, err := t.Write(packet); errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

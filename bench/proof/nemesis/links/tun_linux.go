package links

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tun is a TUN device. Packets that the kernel routes to the device are read from it. Packets that
// are written to the device arrive at the kernel. The device vanishes when it is closed. A device
// that is moved into a namespace stays tied to the file here.
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

// write passes a packet to the kernel. A packet that the kernel does not accept is lost. This is an
// error only if the device is closed.
func (t *tun) write(packet []byte) error {
	if _, err := t.Write(packet); errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

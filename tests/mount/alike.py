"""Makes the same calls in any directory and prints what each answered: alike.py DIRECTORY PART.

Lines from a volume and from a bare ext4 directory must be the same. Names of one part share a placement key where two of them
are to lie on one disk (k.tmp and k.data).
"""
import ctypes, errno, fcntl, mmap, os, random, resource, shutil, struct, subprocess, sys, time, zlib

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
# Longer than the tick that file systems stamp with.
TICK = 0.02


def answer(call, *args):
    """What a call returned, or its errno by name."""
    try:
        result = call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 'done' if result is None else result


def opens(path, flags):
    """Whether it opens."""
    return answer(lambda: os.close(os.open(path, flags, 0o644)))


def libc_call(name, *args):
    wide = [arg.encode() if isinstance(arg, str) else ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    if getattr(libc, name)(*wide) < 0:
        return errno.errorcode[ctypes.get_errno()]
    return 'done'


def rename(old, new, flags=0):
    return libc_call('renameat2', AT_FDCWD, old, AT_FDCWD, new, flags)


def fallocate(fd, mode, offset, length):
    return libc_call('fallocate', fd, mode, offset, length)


def put(path, data=b'x'):
    with open(path, 'wb') as file:
        file.write(data)


def moved(label, paths, call, renamed={}):
    """Which of mtime and ctime a call moves, forward or back, of which path."""
    def times(path):
        stat = os.stat(path)
        return stat.st_mtime_ns, stat.st_ctime_ns
    before = {path: times(path) for path in paths}
    time.sleep(TICK)
    result = call()
    after = {path: times(renamed.get(path, path)) for path in paths}
    words = {path: [a > b and 'later' or a < b and 'EARLIER' or 'same' for a, b in zip(after[path], before[path])] for path in paths}
    print(label, result, words)


def times():
    for path in ['a', 'b']:
        os.mkdir(path)
    put('a/f'), put('b/g'), put('b/k.data')
    moved('create', ['.', 'a'], lambda: put('a/h'))
    moved('open with O_CREAT', ['a', 'a/h'], lambda: opens('a/h', os.O_CREAT | os.O_WRONLY))
    moved('O_TRUNC', ['a', 'a/h'], lambda: opens('a/h', os.O_TRUNC | os.O_WRONLY))
    moved('O_TRUNC of an empty file', ['a/h'], lambda: opens('a/h', os.O_TRUNC | os.O_WRONLY))
    moved('rename across', ['.', 'a', 'b', 'a/f'], lambda: rename('a/f', 'b/f'), {'a/f': 'b/f'})
    moved('rename', ['b', 'b/f'], lambda: rename('b/f', 'b/k.tmp'), {'b/f': 'b/k.tmp'})
    moved('rename over', ['b', 'b/k.tmp'], lambda: rename('b/k.tmp', 'b/k.data'), {'b/k.tmp': 'b/k.data'})
    moved('rename over another', ['b', 'b/k.data'], lambda: rename('b/k.data', 'b/g'), {'b/k.data': 'b/g'})
    moved('rename onto itself', ['b', 'b/g'], lambda: rename('b/g', 'b/g'))
    put('b/x')
    moved('NOREPLACE refused', ['b', 'b/g', 'b/x'], lambda: rename('b/g', 'b/x', NOREPLACE))
    put('a/k.tmp'), put('b/k.data')
    both = {'a/k.tmp': 'b/k.data', 'b/k.data': 'a/k.tmp'}
    moved('exchange', ['a', 'b', *both], lambda: rename('a/k.tmp', 'b/k.data', EXCHANGE), both)
    for change in [lambda: os.chmod('b/x', 0o600), lambda: os.chown('b/x', 1, 1), lambda: os.utime('b/x', (1, 2 ** 31)),
                   lambda: os.setxattr('b/x', 'user.a', b'1'), lambda: os.removexattr('b/x', 'user.a'),
                   lambda: os.truncate('b/x', 5), lambda: os.truncate('b/x', 5)]:
        moved('attributes', ['b', 'b/x'], change)
    moved('xattr of a directory', ['b'], lambda: os.setxattr('b', 'user.a', b'1'))
    fd, source = os.open('b/x', os.O_RDWR), os.open('b/source', os.O_CREAT | os.O_RDWR)
    os.write(source, b'z' * 50000)
    for change in [lambda: os.write(fd, b'hello'), lambda: os.pwrite(fd, b'', 0), lambda: os.ftruncate(fd, 5),
                   lambda: fallocate(fd, 0, 0, 100000), lambda: fallocate(fd, KEEP_SIZE, 200000, 100000),
                   lambda: fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 8192), lambda: fallocate(fd, ZERO_RANGE, 0, 8192),
                   lambda: os.copy_file_range(source, fd, 50000, 0, 0), lambda: os.fsync(fd)]:
        moved('contents', ['b/x', 'b/source'], change)
    moved('mkdir', ['b'], lambda: os.mkdir('b/d'))
    moved('mkdir refused', ['b'], lambda: answer(os.mkdir, 'b/d'))
    moved('unlink refused', ['b'], lambda: answer(os.unlink, 'b/none'))
    moved('directory across', ['a', 'b', 'b/d'], lambda: rename('b/d', 'a/d'), {'b/d': 'a/d'})
    moved('rmdir', ['.', 'a'], lambda: os.rmdir('a/d'))
    for label, call in [('unlink', lambda: os.unlink('b/x')), ('replace', lambda: rename('b/source', 'b/g'))]:
        fd = os.open('b/x' if label == 'unlink' else 'b/g', os.O_RDONLY)
        before = os.fstat(fd)
        moved(label, ['b'], call)
        after = os.fstat(fd)
        print(label, after.st_nlink, after.st_ctime_ns > before.st_ctime_ns, after.st_mtime_ns == before.st_mtime_ns)


def names():
    long = 'n' * 256
    paths = {'too long': long, 'below too long': long + '/x', 'through a file': 'f/x', 'in no directory': 'none/x',
             'none': 'none', 'a file with a slash': 'f/', 'a dot of a file': 'f/.', 'too deep': 'x/' * 2100}
    calls = {
        'stat': lambda path: os.stat(path).st_size, 'open': lambda path: opens(path, os.O_RDONLY), 'mkdir': os.mkdir,
        'creat': lambda path: opens(path, os.O_CREAT | os.O_RDWR), 'rmdir': os.rmdir, 'unlink': os.unlink,
        'rename from': lambda path: rename(path, 'z'), 'rename to': lambda path: rename('f', path),
        'rename a directory to': lambda path: rename('d', path), 'exchange': lambda path: rename('f', path, EXCHANGE),
        'exchange from': lambda path: rename(path, 'f', EXCHANGE), 'noreplace': lambda path: rename('f', path, NOREPLACE),
        'truncate': lambda path: os.truncate(path, 0), 'chmod': lambda path: os.chmod(path, 0o600),
        'chown': lambda path: os.chown(path, 0, 0), 'utime': os.utime, 'getxattr': lambda path: os.getxattr(path, 'user.a'),
        'setxattr': lambda path: os.setxattr(path, 'user.a', b''), 'listdir': os.listdir, 'chdir': os.chdir,
        'access': lambda path: os.access(path, os.F_OK), 'statvfs': lambda path: os.statvfs(path).f_namemax,
    }
    for call in calls:
        for path in paths:
            for name in os.listdir('.'):
                shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
            put('f'), os.mkdir('d')
            print(call, path, answer(calls[call], paths[path]), sorted(os.listdir('.')))


def errors():
    put('f'), os.makedirs('d/e'), put('d/f')
    for path, flags in [('d', os.O_WRONLY), ('d', os.O_RDWR), ('d', os.O_CREAT), ('d', os.O_CREAT | os.O_EXCL), ('d', os.O_TRUNC),
                        ('f', os.O_DIRECTORY), ('new', os.O_CREAT | os.O_DIRECTORY), ('f', os.O_CREAT | os.O_EXCL), ('f', 3),
                        ('f', os.O_PATH), ('f', os.O_NOFOLLOW), ('f', os.O_RDONLY | os.O_TRUNC), ('d', os.O_RDONLY)]:
        print('open', path, oct(flags), opens(path, flags))
    for call, *args in [
            (os.unlink, 'd'), (os.rmdir, 'f'), (os.rmdir, 'd'), (os.rmdir, 'd/.'), (os.rmdir, 'd/..'), (os.unlink, 'd/.'),
            (os.mkdir, 'd/.'), (os.mkdir, 'f'), (rename, 'd/.', 'q'), (rename, 'd/..', 'q'), (rename, 'f', 'd/.'),
            (rename, 'f', 'd'), (rename, 'd', 'f'), (rename, 'd/e', 'd'), (rename, 'd', 'd/e/x'), (rename, 'f', 'g/'),
            (rename, 'd/e', 'd/e2/'), (rename, 'f', 'g', 8), (rename, 'f', 'g', NOREPLACE | EXCHANGE),
            (rename, 'f', 'none', EXCHANGE), (rename, 'f', 'f', EXCHANGE), (rename, 'f', 'f', NOREPLACE),
            (rename, 'f', '/proc/self/f'), (rename, 'd', '/proc/self/d'),
            (os.truncate, 'd', 0), (os.truncate, 'f', -1), (os.truncate, 'f', 2 ** 62), (os.truncate, 'f', 2 ** 44),
            (os.truncate, 'f', 2 ** 43), (os.truncate, 'f', 1), (os.link, 'f', 'd'), (os.link, 'none', 'l'),
            (os.symlink, 'f', 'd'), (os.readlink, 'f'), (os.mkfifo, 'f'), (os.execv, './d', ['d']), (os.execv, './f', ['f'])]:
        print(call.__name__, *args, answer(call, *args))
    print(sorted(os.listdir('.')), sorted(os.listdir('d')))


def handles():
    put('f', b'abc' * 1000)
    r, w, rw, d, path = [os.open(*args) for args in [
        ('f', os.O_RDONLY), ('f', os.O_WRONLY), ('f', os.O_RDWR), ('.', os.O_RDONLY), ('f', os.O_PATH)]]
    def pipe():
        return os.pipe()[1]
    mapped = lambda *args, **kinds: mmap.mmap(*args, **kinds).close()
    calls = [
        (os.write, r, b'x'), (os.read, w, 1), (os.read, d, 1), (os.pread, rw, 1, -1), (os.pwrite, rw, b'x', -1),
        (os.pwrite, rw, b'x', 2 ** 63 - 1), (os.pwrite, rw, b'x', 2 ** 62), (os.pwrite, rw, b'x', 2 ** 44), (os.lseek, rw, 0, 2),
        (os.lseek, rw, -1, 0), (os.lseek, rw, 0, 9), (os.lseek, rw, -1, os.SEEK_DATA), (os.lseek, rw, -1, os.SEEK_HOLE),
        (os.lseek, rw, 3000, os.SEEK_DATA), (os.lseek, rw, 3000, os.SEEK_HOLE), (os.lseek, rw, 0, os.SEEK_HOLE),
        (os.lseek, w, 0, os.SEEK_HOLE), (os.lseek, w, 10, os.SEEK_DATA), (os.ftruncate, r, 0), (os.ftruncate, rw, -1),
        (os.ftruncate, rw, 2 ** 62), (os.ftruncate, d, 0), (os.fsync, path), (os.fsync, d), (os.fdatasync, d), (os.fsync, r),
        (os.fdatasync, w), (fallocate, rw, 0, 0, 0), (fallocate, rw, 0, -1, 10), (fallocate, r, 0, 0, 10), (fallocate, d, 0, 0, 10),
        (fallocate, rw, 0, 2 ** 62, 4096), (fallocate, rw, 0, 2 ** 44, 4096), (fallocate, rw, 0, 2 ** 63 - 1, 4096),
        (fallocate, rw, PUNCH_HOLE, 0, 4096), (fallocate, rw, 0x1000, 0, 4096), (fallocate, rw, 0x40, 0, 4096),
        (os.copy_file_range, r, r, 10, 0, 0), (os.copy_file_range, rw, rw, 10, 0, 5), (os.copy_file_range, d, rw, 10, 0, 0),
        (os.copy_file_range, r, rw, 10, 0, 5000), (os.copy_file_range, r, rw, 10, 10 ** 6, 0), (os.sendfile, rw, r, 0, 100),
        (os.fchmod, path, 0o600), (os.fchmod, r, 0o640), (os.fchown, r, 0, 0), (os.utime, r, (5, 5)),
        (fcntl.flock, path, fcntl.LOCK_EX), (fcntl.lockf, r, fcntl.LOCK_EX | fcntl.LOCK_NB),
        (fcntl.lockf, w, fcntl.LOCK_SH | fcntl.LOCK_NB), (mapped, w, 100), (mapped, r, 100), (mapped, rw, 100),
        (os.posix_fadvise, rw, 0, 0, os.POSIX_FADV_DONTNEED), (os.pwritev, w, [b'q'], 0, os.RWF_SYNC),
        (os.pwritev, w, [b'tail'], 0, os.RWF_APPEND), (os.preadv, r, [bytearray(4)], 0, os.RWF_HIPRI),
        (fcntl.fcntl, rw, fcntl.F_SETFL, os.O_APPEND), (os.write, rw, b'end')]
    for call, *args in calls:
        print(call.__name__, *args[1:], answer(call, *args), os.fstat(r).st_size)
    print(open('f', 'rb').read())


def xattrs():
    put('f'), os.mkdir('d')
    values = {'a': b'1', 'empty': b'', '': b'1', 'n' * 250: b'1', 'n' * 251: b'1', 'big': b'v' * 3000, 'bigger': b'v' * 4096,
              'biggest': b'v' * 65536, 'too big': b'v' * 65537, 'binary': b'\0\xff\0'}
    for path in ['f', 'd']:
        for name, value in values.items():
            print(path, name, answer(os.setxattr, path, 'user.' + name, value), answer(os.getxattr, path, 'user.' + name))
        for flags in [os.XATTR_CREATE, os.XATTR_REPLACE, 3, 4]:
            print(flags, [answer(os.setxattr, path, 'user.' + name, b'', flags) for name in ['a', 'none']])
        print([answer(os.removexattr, path, 'user.' + name) for name in ['a', 'a', 'none', '']])
        print(sorted(name for name in os.listxattr(path) if not name.startswith('user.kvspan.')))
    fd = os.open('f', os.O_RDONLY)
    os.unlink('f')
    print(answer(os.setxattr, fd, 'user.u', b'1'), answer(os.getxattr, fd, 'user.u'), answer(os.removexattr, fd, 'user.u'))


def unlinked():
    put('f', b'0123456789')
    fd = os.open('f', os.O_RDWR)
    os.unlink('f')
    again = lambda flags: os.open('/proc/self/fd/%d' % fd, flags)
    stat = lambda: [getattr(os.fstat(fd), 'st_' + word) for word in ['nlink', 'size', 'mode', 'uid', 'gid', 'mtime']][:5]
    for call, *args in [
            (os.pwrite, fd, b'abc', 20), (os.fchmod, fd, 0o600), (os.fchown, fd, 3, 4), (os.utime, fd, (7, 8)), (os.ftruncate, fd, 3),
            (os.fsync, fd), (fallocate, fd, 0, 0, 100000), (lambda: os.pread(again(os.O_RDONLY), 3, 0),),
            (lambda: os.pwrite(again(os.O_RDWR), b'ZZ', 0),), (os.pread, fd, 3, 0), (put, 'f', b'new'), (os.pread, fd, 3, 0),
            (fcntl.flock, fd, fcntl.LOCK_EX), (lambda: mmap.mmap(fd, 3)[:3],), (os.unlink, 'f'), (os.fdatasync, fd)]:
        print(call.__name__, *args[1:], answer(call, *args), stat())


def running():
    shutil.copy('/bin/sleep', 'program')
    os.chmod('program', 0o755)
    run = lambda: subprocess.run(['./program', '0']).returncode
    for flags in [os.O_WRONLY, os.O_RDWR]:
        writer = os.open('program', flags)
        print('open for writing', answer(run))
        os.close(writer)
        print('closed', answer(run))
    child = subprocess.Popen(['./program', '60'])
    while os.readlink('/proc/%d/exe' % child.pid) != os.path.realpath('program'):
        time.sleep(0.001)
    for flags in [os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_RDONLY]:
        print('runs', oct(flags), opens('program', flags))
    print(answer(os.truncate, 'program', 0), answer(os.chmod, 'program', 0o700), rename('program', 'other'))
    print(opens('other', os.O_WRONLY), answer(os.unlink, 'other'), child.poll())
    child.kill()
    child.wait()


def in_child(call, *args):
    """The answer of a call in another process, or the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.write(writer, str(answer(call, *args)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    signal = os.waitpid(child, 0)[1] & 127
    return 'signal %d' % signal if signal else text


def locks():
    put('f', b'0123456789'), put('g')
    us, them = os.open('f', os.O_RDWR), lambda: os.open('f', os.O_RDWR)
    EX, SH, UN, NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN, fcntl.LOCK_NB
    def flock(kind):
        return in_child(lambda: fcntl.flock(them(), kind | NB))
    def lockf(kind, start=0, length=0):
        return in_child(lambda: fcntl.lockf(them(), kind | NB, length, start))
    def record(fd, command, kind, start=0, length=0):
        """A struct flock in, and the kind, whence, start and length of what comes back."""
        lock = fcntl.fcntl(fd, command, struct.pack('hhqqi4x', kind, 0, start, length, 0))
        return struct.unpack('hhqqi4x', lock)[:4]
    for kind in [EX, SH, UN]:
        fcntl.flock(us, kind)
        print('flock', kind, flock(EX), flock(SH), 'by fcntl', lockf(EX), 'another file', in_child(
            lambda: fcntl.flock(os.open('g', os.O_RDWR), EX | NB)))
    fcntl.flock(us, SH)
    second = them()
    print('two handles', answer(fcntl.flock, second, SH | NB), answer(fcntl.flock, second, EX | NB), flock(EX))
    os.close(second), fcntl.flock(us, EX)
    again = os.dup(us)
    os.close(us)
    print('a duplicate keeps it', flock(SH))
    us = again
    os.close(us)
    print('closed', flock(EX))
    us = them()
    for kind, start, length in [(EX, 2, 3), (SH, 0, 0), (UN, 4, 2), (EX, 100, 0), (UN, 0, 0)]:
        fcntl.lockf(us, kind, length, start)
        print('lockf', kind, start, length, [lockf(EX, at, 1) for at in range(7)], lockf(SH, 3, 1), lockf(EX, 2 ** 40, 1))
    fcntl.lockf(us, EX, 3, 2)
    print('F_GETLK', in_child(lambda: record(them(), fcntl.F_GETLK, fcntl.F_WRLCK)))
    os.close(them())
    print('any close ends them', lockf(EX))
    F_OFD_GETLK, F_OFD_SETLK = 36, 37
    record(us, F_OFD_SETLK, fcntl.F_WRLCK, 5, 5)
    second = them()
    print('OFD', answer(record, second, F_OFD_SETLK, fcntl.F_WRLCK, 0, 5), answer(record, second, F_OFD_SETLK, fcntl.F_RDLCK, 9, 1),
          record(second, F_OFD_GETLK, fcntl.F_RDLCK), lockf(EX, 7, 1))
    os.close(second)
    print('another close ends none', lockf(EX, 7, 1), in_child(lambda: record(us, F_OFD_SETLK, fcntl.F_RDLCK, 5, 5)), lockf(SH, 7, 1))
    os.close(us)
    print('its own does', lockf(EX, 7, 1))
    us = them()
    # One that waits gets it when it is free, and one that ends gives it back.
    for lock, free in [(lambda fd: fcntl.flock(fd, EX), lambda fd: fcntl.flock(fd, UN)),
                       (lambda fd: fcntl.lockf(fd, EX), lambda fd: fcntl.lockf(fd, UN))]:
        lock(us)
        waiter = os.fork()
        if waiter == 0:
            fd = them()
            lock(fd)
            os.pwrite(fd, b'got it', 0)
            os._exit(0)
        while '->' not in open('/proc/locks').read():
            time.sleep(0.001)
        print('held', os.pread(us, 6, 0))
        free(us)
        os.waitpid(waiter, 0)
        print('given', os.pread(us, 6, 0), answer(lock, us))
        os.pwrite(us, b'again ', 0), free(us)
    os.unlink('f')
    print('unlinked', answer(fcntl.flock, us, EX | NB), answer(fcntl.lockf, us, EX | NB))


def maps():
    put('f', b'a' * 12288)
    fd = os.open('f', os.O_RDWR)
    shared = mmap.mmap(fd, 12288)
    os.ftruncate(fd, 10000)
    private = mmap.mmap(fd, 10000, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    touch = lambda at: in_child(lambda: shared[at])
    print('beyond the end of the file', touch(9999), touch(10001), touch(12287))
    shared[10000:10010] = b'b' * 10
    shared.flush()
    print('not written', os.fstat(fd).st_size, os.pread(fd, 20, 9995))
    os.ftruncate(fd, 4096)
    print('cut', touch(4095), touch(4096), os.fstat(fd).st_size)
    os.ftruncate(fd, 12288)
    print('grown', touch(4096), touch(12287))
    os.pwrite(fd, b'written', 5000)
    print('read through the map', shared[5000:5007], private[5000:5007])
    private[5000:5003] = b'PPP'
    print('private', private[5000:5007], shared[5000:5007], os.pread(fd, 7, 5000))
    shared[8192:8199] = b'through'
    print('by a read', os.pread(fd, 7, 8192), in_child(lambda: os.pread(os.open('f', os.O_RDONLY), 7, 8192)))
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 4096, 4096)
    print('punched', shared[5000:5007], shared[8192:8199])
    in_child(lambda: shared.__setitem__(slice(0, 5), b'child'))
    print('by another process', shared[0:5], os.pread(fd, 5, 0))
    os.unlink('f')
    shared[0:5] = b'after'
    shared.flush()
    print('unlinked', os.pread(fd, 5, 0), os.fstat(fd).st_nlink)
    os.close(fd)
    print('and closed', shared[0:5], private[0:5])


def anything():
    """Random calls on few names and handles, the same ones in every directory."""
    draw = random.Random(1)
    paths = ['a', 'b', 'k.tmp', 'k.data', 'd', 'e', 'd/x', 'd/y', 'e/x', 'd/e', 'd/e/z', 'e/d', 'e/d/q', 'a/b', '.', 'd/..']
    flags = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
             os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, os.O_RDONLY | os.O_CREAT]
    handles = {}
    def reopen(slot, path, how):
        close(slot)
        handles[slot] = os.open(path, how, 0o640)
    def close(slot):
        if slot in handles:
            os.close(handles.pop(slot))
    def shown(stat):
        # Sizes of directories are the disk's own, and one that has gone keeps two links here.
        is_dir = stat.st_mode & 0o40000
        return not is_dir and stat.st_size, max(stat.st_nlink, is_dir and 2), oct(stat.st_mode)
    def of_file(call):
        return lambda fd, n: call(fd, n) if os.fstat(fd).st_mode & 0o100000 else None
    by_path = [
        (3, lambda path, other, n: os.mkdir(path, 0o750)), (2, lambda path, other, n: os.rmdir(path)),
        (3, lambda path, other, n: os.unlink(path)), (6, lambda path, other, n: rename(path, other)),
        (2, lambda path, other, n: rename(path, other, NOREPLACE)), (6, lambda path, other, n: shown(os.stat(path))),
        (2, lambda path, other, n: sorted(os.listdir(path))), (2, lambda path, other, n: os.truncate(path, n)),
        (1, lambda path, other, n: os.chmod(path, 0o700 | n & 0o77)),
        (2, lambda path, other, n: zlib.crc32(open(path, 'rb').read()))]
    by_handle = [
        (4, lambda fd, n: os.pwrite(fd, bytes([n % 251]) * (n % 9000), n % 20000)), (2, lambda fd, n: os.write(fd, b'q' * (n % 3000))),
        (4, lambda fd, n: zlib.crc32(os.pread(fd, n % 9000, n % 7000))), (4, lambda fd, n: shown(os.fstat(fd))),
        (2, of_file(lambda fd, n: os.ftruncate(fd, n % 30000))), (1, of_file(lambda fd, n: os.fsync(fd))),
        (2, of_file(lambda fd, n: fallocate(fd, [0, 1, 3, 16][n % 4], n % 10000, 1 + n % 5000))),
        (1, of_file(lambda fd, n: os.fchmod(fd, 0o600 | n & 0o77)))]
    calls = [call for weight, call in by_path + by_handle for _ in range(weight)]
    of_paths = [call for _, call in by_path]
    for step in range(5000):
        slot, path, other, n, how = draw.randrange(6), draw.choice(paths), draw.choice(paths), draw.randrange(1 << 16), draw.choice(flags)
        call, kind = draw.choice(calls), draw.randrange(8)
        if kind == 0:
            print(step, 'open', slot, path, oct(how), answer(reopen, slot, path, how))
        elif kind == 1 and n % 3 == 0:
            print(step, 'close', slot, close(slot))
        elif call in of_paths:
            print(step, of_paths.index(call), path, other, n, answer(call, path, other, n))
        elif slot in handles:
            print(step, slot, n, answer(call, handles[slot], n))


top = os.path.join(sys.argv[1], sys.argv[2])
os.mkdir(top)
os.chdir(top)
globals()[sys.argv[2]]()

// How the real stub starts and ends. This process plays the server.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;
namespace fs = std::filesystem;

CASE(stub_dry_run_exits_1_with_an_empty_environment) { CHECK_EQ(StatusOf(TheSetup().stub), 1); }

CASE(stub_sends_the_startup_message_and_beats) {
  RunningStub running(kModel);
  CHECK(running.peer.BeatsAgain());
  CHECK(running.peer.BeatsAgain());
  CHECK(!running.peer.from_stub_answers.TryPop(0));
}

CASE(stub_completes_a_configuration_and_finalizes) {
  RunningStub running(kModel);
  running.peer.SendAutoComplete(R"({"name": "größe"})");
  std::string config;
  CHECK(!running.peer.TakeAutoComplete(&config));
  CHECK_EQ(config, R"({"name": "gr\u00f6\u00dfe", "max_batch_size": 4})");
  CHECK(!running.peer.from_stub_requests.TryPop(0));
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
}

CASE(stub_reports_why_it_cannot_complete_and_ends) {
  RunningStub running("raise RuntimeError('at import')\n");
  running.peer.SendAutoComplete("{}");
  std::string config;
  CHECK_HAS(running.peer.TakeAutoComplete(&config).value_or(""), "RuntimeError: at import");
  CHECK_EQ(running.stub.Wait(), 0);
}

CASE(stub_passes_the_arguments_of_initialize) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  const auto answer = running.Execute({RequestOf("args", kTwoFloats)});
  CHECK_EQ(answer.error.value_or(""), "");
  CHECK(answer.responses.at(0).outputs.at(0).bytes == std::string("\5\0\0\0model\1\0\0\0"
                                                                  "2",
                                                                  14));
}

// A class that makes what it delegates to when it is first needed.
CASE(stub_reports_what_a_model_raises_when_its_methods_are_looked_up) {
  const std::string lookup = "class TritonPythonModel:\n    def __getattr__(self, name):\n        ";
  RunningStub broken(lookup + "raise ImportError('libweights.so.3')\n");
  CHECK_HAS(broken.Initialize().value_or(""), "ImportError: libweights.so.3");
  RunningStub empty(lookup + "raise AttributeError(name)\n");
  CHECK(!empty.Initialize());
  CHECK_HAS(empty.Execute({RequestOf("", kTwoFloats)}).error.value_or(""),
            "does not implement `execute` method");
}

CASE(stub_reports_why_it_cannot_initialize_and_ends_at_once) {
  RunningStub running(
      "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('boom')\n");
  CHECK_HAS(running.Initialize().value_or(""), "ValueError: boom\n\nAt:\n");
  CHECK_EQ(running.stub.Wait(), 0);
  CHECK(running.peer.region.NameExists());
}

CASE(stub_does_not_wait_for_threads_that_the_model_left) {
  for (const std::string start : {"threading.Thread(target=time.sleep, args=(60,)).start()",
                                  "concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 60)"}) {
    RunningStub running("import concurrent.futures, threading, time\n" + start +
                        "\nclass TritonPythonModel:\n    def execute(self, requests):\n        return []\n");
    CHECK(!running.Initialize());
    running.SkipReport();
    CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
    CHECK_EQ(running.stub.Wait(), 0);
    CHECK(!Has(running.stub.Output(), "atexit"));
  }
}

CASE(stub_writes_what_a_model_has_in_the_buffers_of_files) {
  RunningStub running(R"(
import io, sys

FILE = open(__file__ + ".written", "w")

class Packed(io.RawIOBase):
    def writable(self):
        return True
    def write(self, content):
        return FILE.write(bytes(content).decode())
    def close(self):
        if not self.closed:
            FILE.write("end")
        super().close()

PACKED, CLOSED, READ = io.TextIOWrapper(io.BufferedWriter(Packed())), open(__file__), open(__file__)
CLOSED.close()
sys.stdout = Packed()
sys.stdout.write = lambda text: None

class TritonPythonModel:
    def finalize(self):
        FILE.write("begun, ")
        PACKED.write("packed, ")
)");
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
  std::string written;
  std::getline(std::ifstream(running.model + ".written"), written);
  CHECK_EQ(written, "begun, packed, end");
  CHECK(!Has(running.stub.Output(), "Error"));
}

// A pool that nothing refers to any more ends by itself.
CASE(stub_ends_a_pool_of_processes_before_multiprocessing_waits_for_them) {
  RunningStub running(R"(
import concurrent.futures, multiprocessing

multiprocessing.set_start_method("fork")
POOL = concurrent.futures.ProcessPoolExecutor(1)

class TritonPythonModel:
    def initialize(self, args):
        print("from the pool:", POOL.submit(abs, -2).result())
)");
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
  CHECK_HAS(running.stub.Output(), "from the pool: 2");
  CHECK(!Has(running.stub.Output(), "atexit"));
}

CASE(stub_waits_some_seconds_for_functions_of_atexit) {
  RunningStub running(R"(
import atexit, threading

class TritonPythonModel:
    def initialize(self, args):
        atexit.register(threading.Event().wait)
    def finalize(self):
        print("from finalize")
)");
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
  CHECK_HAS(running.stub.Output(), "from finalize");
  CHECK_HAS(running.stub.Output(),
            "'model_0_0' ends although its atexit functions have not returned within 5 s");
}

CASE(stub_does_not_wait_for_a_thread_that_waits_for_input) {
  RunningStub running(
      "import ctypes, os, threading\nlibc = ctypes.CDLL(None)\n"
      "libc.fdopen.restype = ctypes.c_void_p\nfile = ctypes.c_void_p(libc.fdopen(os.pipe()[0], b'r'))\n"
      "reads = threading.Event()\n"
      "def read():\n    reads.set()\n    libc.fgetc(file)\n"
      "threading.Thread(target=read, daemon=True).start()\nreads.wait()\n"
      "libc.printf(b'written at the end\\n')\n"
      "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n");
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
  CHECK_HAS(running.stub.Output(), "written at the end\n");
}

// The model logs from the main thread, and Python's other threads run meanwhile.
CASE(stub_makes_a_model_wait_that_logs_faster_than_the_server_reads) {
  RunningStub running(
      "import os, threading\nimport triton_python_backend_utils as pb_utils\n"
      "class TritonPythonModel:\n    def execute(self, requests):\n"
      "        logged = []\n"
      "        def watch():\n"
      "            while len(logged) < 4096: pass\n"
      "            open(__file__ + '.full', 'w').close()\n"
      "        threading.Thread(target=watch).start()\n"
      "        for number in range(4200):\n"
      "            pb_utils.Logger.log_info(str(number))\n"
      "            logged.append(number)\n"
      "        raise ValueError(f'{len(logged)} lines')\n");
  CHECK(!running.Initialize());
  running.SkipReport();
  running.peer.SendExecute({RequestOf("", kTwoFloats)});
  CHECK(Soon([&] { return fs::exists(running.model + ".full"); }));
  CHECK(!running.peer.from_stub_answers.TryPop(100));
  for (int number = 0; number < 4200; ++number)
    CHECK_EQ(running.peer.TakeLog().message, std::to_string(number));
  CHECK_HAS(running.peer.TakeExecute().error.value_or(""), "ValueError: 4200 lines");
  running.peer.Drop();
}

CASE(stub_finalizes_after_its_answer) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  running.SkipReport();
  CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
  CHECK_EQ(running.stub.Wait(), 0);
  CHECK_EQ(access((running.model.substr(0, running.model.size() - 8) + "finalized").c_str(), F_OK), 0);
  CHECK(running.peer.region.NameExists());
}

CASE(stub_survives_the_signals_of_a_terminal) {
  RunningStub running(kModel);
  CHECK(!running.Initialize());
  for (int i = 0; i < 20; ++i) {
    kill(running.stub.pid(), i % 2 == 0 ? SIGINT : SIGTERM);
    CHECK(!running.Execute({RequestOf("", kTwoFloats)}).error);
  }
}

CASE(stub_ignores_an_unknown_command) {
  RunningStub running(kModel);
  running.peer.SendCommand(99);
  CHECK(!running.Initialize());
}

CASE(stub_without_libpython_reports_that_through_the_server) {
  StubProcess::Options options;
  options.with_libpython = false;
  for (const bool complete : {true, false}) {
    RunningStub running(kModel, options, Peer::Options{});
    CHECK(running.peer.BeatsAgain());
    std::string config;
    if (complete) running.peer.SendAutoComplete("{}");
    const auto error = complete ? running.peer.TakeAutoComplete(&config) : running.Initialize();
    CHECK_HAS(error.value_or(""), "Failed to preinitialize Python stub: this stub needs libpython3.");
    CHECK_HAS(error.value_or(""), "The model's execution environment must contain Python 3.");
    CHECK_HAS(running.stub.Output(), "envpack stub: this stub needs libpython3.");
    CHECK_EQ(running.stub.Wait(), complete ? 0 : 1);
  }
}

CASE(stub_without_a_model_file_reports_that_through_the_server) {
  RunningStub running("");
  CHECK_HAS(running.Initialize().value_or(""), "Python model file not found in '" + running.model + "'");
  CHECK_EQ(running.stub.Wait(), 0);
}

// The stub's error for a NumPy whose library cannot be loaded and that raises general advice instead.
std::string NumpyError(const std::string& raised) {
  StubProcess::Options options;
  options.packages = TheSetup().scratch + "/packages";
  fs::create_directories(options.packages);
  std::ofstream(options.packages + "/numpy.py")
      << "try:\n    raise OSError('no libblas.so.3')\n"
         "except OSError as error:\n    raise ImportError('reinstall') "
      << raised;
  RunningStub running(kModel, options, Peer::Options{});
  const std::string error = running.Initialize().value_or("");
  CHECK_EQ(running.stub.Wait(), 0);
  return error.substr(0, error.find('\n'));
}

CASE(stub_reports_the_cause_of_a_failed_import_of_numpy) {
  CHECK_HAS(NumpyError(""), "OSError: no libblas.so.3");
  CHECK_HAS(NumpyError("from error"), "OSError: no libblas.so.3");
  CHECK_HAS(NumpyError("from None"), "ImportError: reinstall");
}

CASE(stub_without_its_region_exits_with_a_reason) {
  Peer peer;
  const std::string model = WriteModel(kModel);
  peer.region.Unlink();
  StubProcess stub(peer, model);
  CHECK_EQ(stub.Wait(), 1);
  CHECK_HAS(stub.Output(), "cannot open shared memory region " + peer.region.name());
}

// A process between this one and the stub plays the server and is killed. It stays a zombie until the end.
CASE(stub_ends_and_removes_the_region_when_the_server_dies) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int pipes[2];
  CHECK_EQ(pipe(pipes), 0);
  const std::string model = WriteModel(kModel);
  const pid_t server = fork();
  if (server == 0) {
    Peer peer;
    StubProcess stub(peer, model);
    peer.TakeStartupMessage();
    peer.SendInitialize(kArguments);
    if (peer.TakeInitialize()) _exit(1);
    char report[128] = {};
    std::snprintf(report, sizeof(report), "%d %s", stub.pid(), peer.region.name().c_str());
    if (write(pipes[1], report, sizeof(report)) < 0) _exit(1);
    pause();
  }
  char report[128] = {};
  CHECK_EQ(read(pipes[0], report, sizeof(report)), static_cast<ssize_t>(sizeof(report)));
  const pid_t stub = std::atoi(report);
  const std::string region = std::string("/dev/shm/") + (std::strchr(report, ' ') + 1);
  CHECK_EQ(access(region.c_str(), F_OK), 0);
  kill(server, SIGKILL);
  int status = -1;
  CHECK(Soon([&] { return waitpid(stub, &status, WNOHANG) == stub; }));
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 1);
  CHECK(access(region.c_str(), F_OK) != 0);
  waitpid(server, nullptr, 0);
  CHECK(access((model.substr(0, model.size() - 8) + "finalized").c_str(), F_OK) != 0);
}

// What a model raises in execute(), as the stubs that belong to the releases log it.
CASE(errors_of_execute_are_one_line_of_the_log_unless_a_variable_says_more_or_less) {
  const std::string raises =
      "class TritonPythonModel:\n    def execute(self, requests):\n        raise ValueError('no\\nline ' + "
      "5000 * '\xC3\xA4')\n";
  for (const char* wish : {"", "1", "0"}) {
    StubProcess::Options options;
    options.variables = {std::string("ENVPACK_LOG_FAILURES=") + wish};
    RunningStub running(raises, options, Peer::Options{});
    CHECK(!running.Initialize());
    running.SkipReport();
    CHECK_HAS(running.Execute({RequestOf("", kTwoFloats)}).error.value_or(""), "ValueError: no\nline");
    if (*wish != '0') {
      const std::string line = running.peer.TakeLog().message;
      const bool is_whole = *wish == '1';
      CHECK_EQ(line.find("Failed to process the request(s) for model 'model_0_0', message: ValueError: no"),
               0u);
      CHECK_EQ(line.find('\n') != std::string::npos, is_whole);
      CHECK_EQ(line.size() > 1003, is_whole);
      if (!is_whole) CHECK_EQ(line.substr(line.size() - 5), "\xC3\xA4...");
    }
    CHECK(running.peer.TakeFinalize(running.peer.SendFinalize()));
    CHECK_EQ(running.stub.Wait(), 0);
    CHECK(!running.peer.from_stub_requests.TryPop(0));
  }
}

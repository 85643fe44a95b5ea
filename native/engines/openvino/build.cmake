# The C headers of OpenVINO, from the installed wheel; the library itself is opened at run time.
# Without them the engine says so when it is asked for, and everything else works.
if(Python_EXECUTABLE AND NOT Python3_EXECUTABLE)
  set(Python3_EXECUTABLE "${Python_EXECUTABLE}")
endif()
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c
    "import importlib.util as u, pathlib as p; s = u.find_spec('openvino'); print(p.Path(s.origin).parent / 'include' if s else '')"
  OUTPUT_VARIABLE found_openvino OUTPUT_STRIP_TRAILING_WHITESPACE)
find_path(OPENVINO_INCLUDE_DIR openvino/c/openvino.h HINTS "${found_openvino}")

if(OPENVINO_INCLUDE_DIR)
  target_include_directories(pipeline_core SYSTEM PRIVATE ${OPENVINO_INCLUDE_DIR})
  target_compile_definitions(pipeline_core PRIVATE PIPELINE_WITH_OPENVINO)
else()
  message(WARNING "OpenVINO's C headers were not found: the engine 'openvino' is left out")
endif()
